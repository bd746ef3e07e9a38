package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// DefaultAddr is where [Server.Listen] listens unless told otherwise. Loopback, because whoever reaches the
// provider can set faults.
const DefaultAddr = "127.0.0.1:8090"

const (
	headerTimeout = 10 * time.Second // for the header of a request
	bodyTimeout   = 30 * time.Second // for its body; there is no write timeout, a delay may be of any length
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 5 * time.Second // for requests under way when Run is told to stop
	maxHeader     = 64 << 10        // bytes
)

// Listen binds addr, where an empty one means [DefaultAddr] and port 0 a free port, and returns the base URL
// with the real port. Connections wait in the listener until [Server.Run].
func (s *Server) Listen(addr string) (url string, err error) {
	if addr == "" {
		addr = DefaultAddr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.closed {
		return "", errors.New("provider listen: the server listens already or is closed")
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("provider listen: %w", err)
	}
	s.listener = listener
	return "http://" + listener.Addr().String(), nil
}

// Run serves what [Server.Listen] bound until ctx ends or the server is closed, then gives requests under way 5 s,
// closes the server and returns nil. It returns an error when it cannot serve any longer, or if Listen was not called.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	listener := s.listener
	s.mu.Unlock()
	if listener == nil {
		return errors.New("provider run: call Listen first")
	}
	web := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()

	var failure error
	select {
	case failure = <-served:
	case <-ctx.Done():
	}
	s.drain()
	// Not Shutdown: that waits up to 5 s for connections which a client opened and never used.
	_ = web.Close()
	switch {
	case failure == nil:
		<-served
	case !errors.Is(failure, net.ErrClosed): // closed is what Close does
		return fmt.Errorf("provider run: %w", failure)
	}
	return nil
}

// drain waits for the requests under way, at most drainTimeout, and closes the server.
func (s *Server) drain() {
	s.refuse()
	limit := time.AfterFunc(drainTimeout, s.end)
	defer limit.Stop()
	s.calls.Wait()
	s.Close()
}
