package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	httpOff        = "off"
	httpStopLimit  = time.Second
	httpReadHeader = 5 * time.Second
)

// probes is the worker's HTTP server: /healthz answers while the process lives, /readyz says why it does not work.
type probes struct {
	ready  atomic.Pointer[func() error]
	server *http.Server
	served chan error
}

// serveProbes listens on addr, or on a free port of the same host where addr is taken, or nowhere where it is off.
// The caller stops it.
func serveProbes(addr string, log *slog.Logger) (*probes, error) {
	p := &probes{served: make(chan error, 1)}
	p.readyWhen(func() error { return errors.New("starting") })
	if addr == httpOff {
		return p, nil
	}
	listener, err := listenNear(addr, log)
	if err != nil {
		return nil, wrongUse("--http-addr (%s): %w", variableOf("http-addr").Key(), err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", p.serveReady)
	p.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: httpReadHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() { p.served <- p.server.Serve(listener) }()
	log.Info("HTTP listens", "url", "http://"+listener.Addr().String(), "paths", "/healthz /readyz")
	return p, nil
}

func listenNear(addr string, log *slog.Logger) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	host, _, splitErr := net.SplitHostPort(addr)
	if splitErr != nil {
		return nil, err
	}
	log.Warn("the HTTP port is taken, a free one is used", "addr", addr)
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// readyWhen replaces the question that /readyz asks.
func (p *probes) readyWhen(ready func() error) { p.ready.Store(&ready) }

func (p *probes) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := (*p.ready.Load())(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// stop ends the server; requests under way get a second.
func (p *probes) stop() {
	if p.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), httpStopLimit)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
}
