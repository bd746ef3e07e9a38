package rig

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// ownGroup keeps a Ctrl-C from the worker, and ends the worker with the test process, even if that is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopSelf and killSelf aim at their own thread. A signal to the process may be taken by any thread, and the
// goroutine that is at the point would run on for a moment.
func stopSelf() { signalOwnThread(syscall.SIGSTOP) }
func killSelf() { signalOwnThread(syscall.SIGKILL) }

func signalOwnThread(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), sig); err != nil {
		panic("rig: signal to itself: " + err.Error())
	}
}

// stopped reports whether every thread of the process stands still.
func stopped(pid int) bool {
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false
		}
		_, rest, _ := bytes.Cut(b, []byte(") ")) // the name before it may hold spaces
		if !bytes.HasPrefix(rest, []byte("T")) {
			return false
		}
	}
	return len(stats) > 0
}
