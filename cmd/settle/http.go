package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"
)

const (
	httpOff        = "off"
	httpStopLimit  = time.Second
	httpReadHeader = 5 * time.Second
	readyLimit     = time.Second // for a question that /readyz asks
)

// httpFlags are those of the HTTP server. Where two services of one host have the same default port, the second takes a free one.
func httpFlags(addr string) []cli.Flag {
	return []cli.Flag{
		stringFlag("http-addr", "`HOST:PORT` for /healthz, /readyz and /metrics; off: none; a taken port: a free one is picked and logged", addr),
		boolFlag("pprof", "also serve /debug/pprof/, to requests from this host only: profiles show what is in memory", false),
	}
}

// probes is the HTTP server of a service: /healthz answers while the process lives, /readyz says why it does not work,
// /metrics is for Prometheus.
type probes struct {
	ready  atomic.Pointer[func() error]
	server *http.Server
	served chan error
}

// serveProbes listens on --http-addr, or on a free port of the same host where it is taken, or nowhere where it is off.
// The caller stops it.
func serveProbes(cmd *cli.Command, metrics http.Handler, log *slog.Logger) (*probes, error) {
	addr := cmd.String("http-addr")
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
	mux.Handle("GET /metrics", metrics)
	if cmd.Bool("pprof") {
		addProfiles(mux)
	}
	p.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: httpReadHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() { p.served <- p.server.Serve(listener) }()
	log.Info("HTTP listens", "url", "http://"+listener.Addr().String(), "paths", "/healthz /readyz /metrics")
	return p, nil
}

// addProfiles serves net/http/pprof, to the loopback interface alone: whoever can read profiles reads memory.
func addProfiles(mux *http.ServeMux) {
	local := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			from, err := netip.ParseAddrPort(r.RemoteAddr)
			if err != nil || !from.Addr().Unmap().IsLoopback() {
				http.Error(w, "profiles are served to this host only", http.StatusForbidden)
				return
			}
			h(w, r)
		}
	}
	mux.HandleFunc("GET /debug/pprof/", local(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", local(pprof.Cmdline))
	mux.HandleFunc("GET /debug/pprof/profile", local(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", local(pprof.Symbol))
	mux.HandleFunc("GET /debug/pprof/trace", local(pprof.Trace))
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
