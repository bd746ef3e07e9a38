package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// view is the answer to one request, before it is HTML or JSON.
type view struct {
	page  string // name of its template
	title string
	data  any    // what the API answers, and the template shows
	goTo  string // a page instead of this one; the API answers with the data all the same
}

// getter finds out what a request is about.
type getter func(*http.Request) (view, error)

// refused is an error of whoever asks.
type refused struct {
	status int
	text   string
}

func (e *refused) Error() string { return e.text }

func badRequest(text string) error { return &refused{http.StatusBadRequest, text} }
func notFound(text string) error   { return &refused{http.StatusNotFound, text} }

func nothingHere(*http.Request) (view, error) { return view{}, notFound(noSuchPage) }

// frame is what every page shows around its own part.
type frame struct {
	Title, Query, Path, Actor string
	Lists                     []listName
	Came                      *came // what came of an act on this page
	MayAct                    bool
	Data                      any
}

// page answers with a page, also where something went wrong.
func (s *screen) page(get getter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := get(r)
		status := http.StatusOK
		if err != nil {
			var text string
			status, text = s.problem(r.Context(), err)
			v = view{page: "problem", title: text, data: text}
		}
		if v.goTo != "" {
			http.Redirect(w, r, v.goTo, http.StatusSeeOther)
			return
		}
		s.render(w, r, status, "frame", v)
	}
}

// part answers with the middle of a page, for the script that keeps it fresh.
func (s *screen) part(get getter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := get(r)
		if err != nil {
			status, text := s.problem(r.Context(), err)
			http.Error(w, text, status)
			return
		}
		s.render(w, r, http.StatusOK, "fresh", v)
	}
}

// api answers with JSON.
func (s *screen) api(get getter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := get(r)
		status, body := http.StatusOK, v.data
		if err != nil {
			var text string
			status, text = s.problem(r.Context(), err)
			body = map[string]string{"error": text}
		}
		s.writeJSON(w, r, status, body)
	}
}

func (s *screen) writeJSON(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.Logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}

// problem is what is told of an error. Only those of whoever asks are told as they are.
func (s *screen) problem(ctx context.Context, err error) (status int, text string) {
	var r *refused
	switch {
	case errors.As(err, &r):
		return r.status, r.text
	case errors.Is(err, idemstore.ErrNotFound):
		return http.StatusNotFound, noSuchThing
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.Logger.ErrorContext(ctx, "page not made in time", "limit", s.ReadLimit, "error", err)
		return http.StatusServiceUnavailable, notInTime
	case ctx.Err() == nil:
		s.Logger.ErrorContext(ctx, "page not made", "error", err)
	}
	return http.StatusServiceUnavailable, cannotRead
}

// render writes a page only once it is whole.
func (s *screen) render(w http.ResponseWriter, r *http.Request, status int, block string, v view) {
	f := frame{Title: v.title, Path: r.URL.Path, Query: r.URL.Query().Get("q"), Lists: listNames, Data: v.data}
	if s.Actor != nil {
		f.Actor, _ = s.Actor(r)
	}
	f.MayAct, f.Came = s.mayAct(r), s.notice(r)
	var body bytes.Buffer
	if err := s.pages[v.page].ExecuteTemplate(&body, block, f); err != nil {
		s.Logger.ErrorContext(r.Context(), "page not made", "page", v.page, "error", err)
		http.Error(w, cannotRead, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

// parsePages reads the templates: each page together with the frame.
func parsePages() (map[string]*template.Template, error) {
	files, err := fs.Glob(assets, "assets/page_*.html")
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	pages := map[string]*template.Template{}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(path.Base(file), "page_"), ".html")
		pages[name], err = template.New(name).Funcs(functions).ParseFS(assets, "assets/frame.html", "assets/shared.html", file)
		if err != nil {
			return nil, fmt.Errorf("read page %s: %w", name, err)
		}
	}
	return pages, nil
}

// functions are those of the templates.
var functions = template.FuncMap{
	"t":     text,
	"lit":   story.Printable,
	"when":  when,
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"wait":  story.Wait,
	"count": story.Grouped,
	"status": func(s string) string {
		return story.Status(idemstore.Status(s))
	},
	"cause":   func(c string) string { return story.Cause(idemstore.Cause(c)) },
	"reason":  reasonIn,
	"actword": func(act string) string { return actWords[act] },
	"dict":    dict,
}

// dict makes the arguments of a template out of names and values.
func dict(pairs ...any) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errors.New("dict: a name is no string")
		}
		out[name] = pairs[i+1]
	}
	return out, nil
}

// number reads a number above 0 that an address names; 0 where it names none.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, badRequest(noNumber)
	}
	return n, nil
}
