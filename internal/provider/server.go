package provider

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options are the settings of a [Server]; the zero value is usable.
type Options struct {
	// Logger gets what fails inside the provider, without keys and bodies. Default: slog.Default().
	Logger *slog.Logger

	// OnPoint is called at each point of each request, by the goroutine that serves it, which waits for the
	// return. Several requests call it at once. ctx survives the client and ends with [Server.Close].
	OnPoint func(ctx context.Context, at Point, call Call)

	// Wrap puts a handler of the caller around the API, a tracing one for example. Its ResponseWriter must
	// have an Unwrap method, or faults that close the connection abort the handler instead.
	Wrap func(http.Handler) http.Handler
}

// Server is the stand-in provider. Create it with [New]; its methods may be called at the same time.
type Server struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	onPoint func(context.Context, Point, Call)
	handler http.Handler
	rules   rules
	errors  storedErrors

	// life ends when nothing may wait any longer. Requests outlive their clients, so this is what stops them.
	life context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	listener net.Listener
	closed   bool           // no new calls
	calls    sync.WaitGroup // grows under mu and only while not closed
}

// New returns a server that keeps its rows in pool's database, which must be migrated, and its faults in memory.
// It starts nothing: mount [Server.Handler], or [Server.Listen] and [Server.Run].
func New(pool *pgxpool.Pool, options Options) *Server {
	s := &Server{pool: pool, log: options.Logger, onPoint: options.OnPoint}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.onPoint == nil {
		s.onPoint = func(context.Context, Point, Call) {}
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.handler = s.routes()
	if options.Wrap != nil {
		s.handler = options.Wrap(s.handler)
	}
	return s
}

// Handler returns the API, the statistics and the fault switches as one handler.
func (s *Server) Handler() http.Handler { return s.handler }

// Close stops listening, lets no further request in, ends all delays, rolls back what is not committed and waits
// until every request is over. Closing again is allowed.
func (s *Server) Close() {
	s.refuse()
	s.end()
	s.calls.Wait()
}

// refuse stops listening and lets no further request in; those under way go on.
func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.listener != nil {
		_ = s.listener.Close() // closed already: as good
	}
}

// begin admits a request. The caller owes calls.Done if it returns true.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// detach returns a context with the values of ctx that ends with the server and not with the client: a provider
// commits although the client went away.
func (s *Server) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(s.life, cancel)
	return work, func() { unlink(); cancel() }
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, res := range []resource{reports, charges} {
		mux.Handle("POST "+res.path, s.serve(create(res)))
		mux.Handle("GET "+res.path, s.serve(search(res)))
		mux.Handle("GET "+res.path+"/{id}", s.serve(find(res)))
	}
	mux.Handle("/", s.serve(nothing))
	mux.HandleFunc("GET /stats", s.stats)
	mux.HandleFunc("GET /faults", s.getFaults)
	mux.HandleFunc("PUT /faults", s.putFaults)
	mux.HandleFunc("DELETE /faults", s.deleteFaults)
	return mux
}
