//go:build !nodemo

package devenv

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS is a nats-server with JetStream in this process.
type NATS struct {
	server   *server.Server
	folder   *folder // nil: the files are the caller's
	stopOnce sync.Once
	stopErr  error
}

// StartNATS starts a server on 127.0.0.1 and returns when it accepts connections, usually after some 30 ms and at
// most after 60 seconds. It lives until Stop, or until this process ends.
func StartNATS(options NATSOptions) (*NATS, error) {
	n := &NATS{}
	if options.Dir == "" {
		folder, err := newFolder("nats", nil)
		if err != nil {
			return nil, fmt.Errorf("start nats: %w", err)
		}
		n.folder, options.Dir = folder, folder.path
	}
	if err := n.boot(options); err != nil {
		return nil, fmt.Errorf("start nats: %w", errors.Join(err, n.Stop()))
	}
	return n, nil
}

func (n *NATS) boot(options NATSOptions) (err error) {
	o := &server.Options{
		ServerName: "settle",
		Host:       "127.0.0.1", Port: portOrRandom(options.Port),
		HTTPHost: "127.0.0.1", HTTPPort: portOrRandom(options.MonitorPort),
		JetStream: true, StoreDir: options.Dir, SyncAlways: options.SyncAlways,
		NoSigs: true,
	}
	if node := options.Node; node != nil {
		o.ServerName, o.Routes = node.Name, server.RoutesFromStr(node.routes())
		o.Cluster = server.ClusterOpts{Name: "settle", Host: "127.0.0.1", Port: node.Port}
	}
	n.server, err = server.NewServer(o)
	if err != nil {
		return err
	}
	trouble := &troubleLog{fatal: make(chan string, 1)}
	n.server.SetLogger(trouble, false, false)
	n.server.Start() // does not block
	return trouble.awaitReady(n.server)
}

func portOrRandom(port int) int {
	if port == 0 {
		return server.RANDOM_PORT
	}
	return port
}

// URL is where clients connect.
func (n *NATS) URL() string { return n.server.ClientURL() }

// MonitorURL is the base of the HTTP monitor: /healthz, /varz, /jsz.
func (n *NATS) MonitorURL() string { return monitorURL(n.server.MonitorAddr().Port) }

// Stop shuts the server down and removes its files, unless Dir was given. It returns when both are done. Repeated
// calls do nothing.
func (n *NATS) Stop() error {
	n.stopOnce.Do(func() {
		if n.server != nil {
			n.server.Shutdown()
			n.server.WaitForShutdown()
		}
		if n.folder == nil {
			return
		}
		if err := n.folder.remove(); err != nil {
			n.stopErr = fmt.Errorf("stop nats: remove its files: %w", err)
		}
	})
	return n.stopErr
}

// serveNATS is the whole life of a child process: start, report on file 3, serve until the parent lets go.
func serveNATS(options NATSOptions) int {
	report := os.NewFile(reportFD, "report")
	n, err := StartNATS(options)
	if err != nil {
		fmt.Fprint(report, err)
		return 1
	}
	fmt.Fprint(report, reportReady)
	_ = report.Close()
	untilParentGone(os.Stdin)
	if err := n.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// troubleLog keeps what an embedded server would have died of; everything else it drops. The server reports a taken
// port or a bad store only here, and then never becomes ready.
type troubleLog struct{ fatal chan string }

func (l *troubleLog) awaitReady(s *server.Server) error {
	deadline := time.Now().Add(startLimit)
	for time.Now().Before(deadline) {
		if s.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
		select {
		case text := <-l.fatal:
			return errors.New(text)
		default:
		}
	}
	return fmt.Errorf("not ready after %s", startLimit)
}

func (l *troubleLog) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, args...):
	default: // the first one is the cause
	}
}

func (l *troubleLog) Errorf(string, ...any)  {}
func (l *troubleLog) Warnf(string, ...any)   {}
func (l *troubleLog) Noticef(string, ...any) {}
func (l *troubleLog) Debugf(string, ...any)  {}
func (l *troubleLog) Tracef(string, ...any)  {}
