// Package admin is the support screen: pages and a JSON API that find a task by whatever a customer has in hand, say in one
// sentence what became of it, list what waits for people, and let operators act.
//
// [New] gives a handler for everything below /. It asks nobody for a password: whoever serves it puts that in front, and says
// with Config.Actor who is signed in. Pages work without JavaScript; what comes from outside is shown as text, never as
// anything else.
//
// Whoever may act reaches, from a task, a refusal or a kind, forms that say what would happen and ask why. A form that is sent
// is done once (see [Acts]), on what was seen and nothing else, by the parts that the commands use. No GET changes anything.
package admin

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// Config is what a screen shows, and for whom.
type Config struct {
	// Store is the idempotency table; required.
	Store *idemstore.Store
	// Kinds are those of this build.
	Kinds []Kind
	// Actor says who is signed in, and whether they may change things. Nil: nobody is, and nothing is said of it.
	Actor func(*http.Request) (name string, operator bool)
	// Acts does what operators ask for. Nil: the screen reads only.
	Acts *Acts
	// TraceURL leads to a trace: an http or https URL with {trace_id}. Empty: trace ids are no links.
	TraceURL string
	// LongAfter is the age from which a task that is not settled is said to run long; 15 min.
	LongAfter time.Duration
	// Strays finds messages that no consumer is given. Nil: the screen is not connected to NATS, and says so.
	Strays func(ctx context.Context, limit int) ([]consumer.Unrouted, error)
	// Undelivered counts the jobs in the stream that no worker was given, by kind. Nil: the screen does not say.
	Undelivered func(ctx context.Context) (map[string]uint64, error)
	// ReadLimit is how long a page may take before it says that the database does not answer; 10 s.
	ReadLimit time.Duration
	// Logger is told what goes wrong; nil: nobody is.
	Logger *slog.Logger
}

const defaultReadLimit = 10 * time.Second

// Kind is a kind of job as the screen shows it.
type Kind struct {
	Name   string
	Link   string   // to an effect: an http or https URL with {id}; empty: external ids are no links
	Hidden []string // members of its bodies whose values are shown to nobody
	Facts  []Fact   // its contract and limits, in words
	Object any      // the same for the JSON API
	Words  Words
}

// Fact is one line about a thing.
type Fact struct{ Name, Value string }

// Words are what customers are answered with. Empty ones say it without naming what was done.
type Words struct {
	Done      string                  // "Charged"
	NotDone   string                  // "Not charged"
	Whether   string                  // "whether it was charged"
	Reference string                  // what the external id is: "charge"
	Detail    func(job []byte) string // of the bytes of the job, which may be anything: "12.00 EUR", or ""
}

// screen serves the pages.
type screen struct {
	Config
	kinds map[string]Kind
	pages map[string]*template.Template
}

//go:embed assets
var assets embed.FS

// New gives the handler of a screen. It returns an error for a Config that cannot work, naming the field.
func New(c Config) (http.Handler, error) {
	if c.Store == nil {
		return nil, errors.New("no Store")
	}
	if c.LongAfter <= 0 {
		c.LongAfter = 15 * time.Minute
	}
	if c.ReadLimit <= 0 {
		c.ReadLimit = defaultReadLimit
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkLink(c.TraceURL, tracePlace); err != nil {
		return nil, fmt.Errorf("TraceURL: %w", err)
	}
	s := &screen{Config: c, kinds: map[string]Kind{}}
	for _, k := range c.Kinds {
		if err := checkLink(k.Link, idPlace); err != nil {
			return nil, fmt.Errorf("kind %s: Link: %w", k.Name, err)
		}
		s.kinds[k.Name] = k
	}
	var err error
	if s.pages, err = parsePages(); err != nil {
		return nil, err
	}
	return s.guarded(s.routes()), nil
}

func (s *screen) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, get := range map[string]getter{
		"/{$}": s.getOverview, "/find": s.getFind, "/tasks/{id}": s.getTask, "/lists/{name}": s.getList,
		"/refusals/{id}": s.getRefusal, "/kinds": s.getKinds,
	} {
		mux.HandleFunc("GET "+path, s.page(get))
		if path == "/{$}" {
			path = "/overview"
		}
		mux.HandleFunc("GET /api"+path, s.api(get))
	}
	for path, o := range s.offers() {
		mux.HandleFunc("GET "+path, s.page(s.getForm(o)))
		mux.HandleFunc("POST "+path, s.send(o))
		mux.HandleFunc("POST /api"+path, s.sendAPI(o))
	}
	mux.HandleFunc("GET /api/presses/{id}", s.api(s.getPress))
	mux.HandleFunc("GET /parts/overview", s.part(s.getOverview))
	mux.HandleFunc("GET /static/style.css", asset("style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /static/fresh.js", asset("fresh.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /static/icon.svg", asset("icon.svg", "image/svg+xml"))
	mux.HandleFunc("/api/", s.api(nothingHere))
	mux.HandleFunc("/", s.page(nothingHere))
	return mux
}

// policy lets a page load nothing but the files of this package, and lets nobody frame it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// guarded sets what all answers have in common, lets nobody write who may not act, and nobody wait for ever for a page. What
// is done has a limit of its own.
func (s *screen) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case !reads && s.Acts == nil:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, readsOnly, http.StatusMethodNotAllowed)
			return
		case !reads && !s.mayAct(r):
			http.Error(w, operatorsOnly, http.StatusForbidden)
			return
		case reads:
			r, cancel := s.briefly(r)
			defer cancel()
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// briefly is a request that waits for the database no longer than a page may take.
func (s *screen) briefly(r *http.Request) (*http.Request, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), s.ReadLimit)
	return r.WithContext(ctx), cancel
}

func asset(name, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(body)
	}
}
