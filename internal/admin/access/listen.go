package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// DefaultAddr is where [Access.Listen] listens unless told otherwise.
const DefaultAddr = "127.0.0.1:8088"

const (
	headerTimeout = 5 * time.Second  // for the header of a request
	readTimeout   = 30 * time.Second // for all of it
	writeTimeout  = time.Minute      // for the answer; a handler that needs longer sets a deadline of its own
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 5 * time.Second // for requests under way when Run is told to stop
	maxHeader     = 32 << 10        // bytes
)

// Server serves a handler behind an [Access]. [Access.Listen] makes it.
type Server struct {
	access   *Access
	listener net.Listener
}

// Listen binds addr, where an empty one means [DefaultAddr] and port 0 a free port. Beyond the loopback interface it
// refuses to listen without a certificate or a list of proxies. Connections wait until [Server.Run].
func (a *Access) Listen(ctx context.Context, addr string) (*Server, error) {
	if addr == "" {
		addr = DefaultAddr
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if !at.IP.IsLoopback() && a.tls == nil && len(a.config.Proxy.From) == 0 {
		return nil, fmt.Errorf("listen on %s: beyond this host, passwords would travel in the clear: "+
			"give a certificate and its key, or list the proxies in front, or listen on %s", addr, DefaultAddr)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &Server{a, listener}, nil
}

// URL is the base URL, with the real port.
func (s *Server) URL() string {
	scheme := "http://"
	if s.access.tls != nil {
		scheme = "https://"
	}
	return scheme + s.listener.Addr().String()
}

// Close stops listening. It is for a server that never runs; closing again does nothing.
func (s *Server) Close() { s.listener.Close() }

// Run serves next behind [Access.Wrap] until ctx ends, then gives requests under way 5 s and returns nil. It returns an
// error when it cannot serve any longer.
func (s *Server) Run(ctx context.Context, next http.Handler) error {
	web := s.access.server(next)
	served := make(chan error, 1)
	go func() {
		if s.access.tls == nil {
			served <- web.Serve(s.listener)
		} else {
			served <- web.ServeTLS(s.listener, "", "") // the certificate is in TLSConfig
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if web.Shutdown(drain) != nil {
		_ = web.Close() // requests that took longer
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (a *Access) server(next http.Handler) *http.Server {
	web := &http.Server{
		Handler:           a.Wrap(next),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
		// net/http would answer "OPTIONS *" by itself, without the headers.
		DisableGeneralOptionsHandler: true,
	}
	if a.tls != nil {
		web.TLSConfig = a.tls.Clone()
	}
	return web
}
