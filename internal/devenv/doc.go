// Package devenv starts real servers for demos, tests and labs, with nothing to set up: a PostgreSQL from the
// binaries that the machine has, and a NATS server with JetStream inside this process or in a child of it.
//
//	StartPostgres     a server of its own: temporary folder, random password, 127.0.0.1 only
//	StartNATS         nats-server in this process; goes with it
//	StartNATSProcess  nats-server in a child process, which can be killed like a real one
//
// Servers and their data are as temporary as the program that started them:
//
//   - Stop ends the process and removes its folder.
//   - Each child has a process group of its own, so Ctrl-C reaches only the program, which can drain first.
//   - A program that is killed takes its children with it. On Linux the kernel sees to it, elsewhere a watcher
//     process does; a NATS child also ends by itself when its parent is gone.
//   - A folder that a killed program left behind is removed by the next start of the same kind. Owner and server
//     hold a file lock in it, so a folder in use is never touched.
//
// A program that uses this package calls [RunChild] first thing in main, because the children are the program
// itself, started again. Test support is in devtest. Under the build tag nodemo nats-server is left out of the
// program, and StartNATS and StartNATSProcess only return an error.
package devenv
