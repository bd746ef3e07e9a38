package access

import (
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

// refusal is an answer that is given instead of the handler's.
type refusal struct {
	status int
	text   string // for the person
	log    string // for the log; empty: not worth a line
	actor  Actor  // for the log, if known
	allow  string // of a method that is not allowed
	signIn bool   // signing in would help
	bearer bool   // a token would help
}

func notAllowed(allow string) *refusal {
	return &refusal{status: http.StatusMethodNotAllowed, text: textMethod, allow: allow}
}

// refuse answers people with a page, or takes them to the sign-in page, and everything else with JSON.
func (a *Access) refuse(w http.ResponseWriter, r *http.Request, p peer, why *refusal) {
	if why.log != "" {
		log := a.log.With("reason", why.log, "status", why.status, "method", r.Method, "path", short(r.URL.Path), "address", p.client)
		if p.client != p.addr {
			log = log.With("proxy", p.addr)
		}
		if why.actor.Name != "" {
			log = log.With("actor", why.actor.Name, "via", why.actor.Via)
		}
		log.WarnContext(r.Context(), "request refused")
	}
	if why.allow != "" {
		w.Header().Set("Allow", why.allow)
	}
	if why.status == http.StatusUnauthorized && (why.signIn || why.bearer) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="settle"`)
	}
	switch {
	case !wantsPage(r):
		writeJSON(w, why)
	case why.signIn && !isWrite(r.Method):
		w.Header().Del("WWW-Authenticate")
		http.Redirect(w, r, pathSignIn+"?"+url.Values{"next": {localPath(r.URL.RequestURI())}}.Encode(), http.StatusSeeOther)
	default:
		writePage(w, why.status, page{Error: why.text, SignIn: why.signIn})
	}
}

// wantsPage tells a person's browser from scripts and from what a page fetches: those would take the sign-in page for
// their answer.
func wantsPage(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return strings.Contains(r.Header.Get("Accept"), "text/html") && (mode == "" || mode == "navigate") &&
		!strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Authorization") == ""
}

func writeJSON(w http.ResponseWriter, why *refusal) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(why.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why.text}) // the client went away
}

// short bounds what a client can put into a line of the log.
func short(s string) string { return s[:min(len(s), 200)] }

// page is what page.html shows.
type page struct {
	Form   bool   // to sign in
	Next   string // where to go then
	Error  string
	SignIn bool // link to the form
}

// Text gives the template its words.
func (page) Text() map[string]string { return pageTexts }

//go:embed page.html
var files embed.FS

var pageTemplate = template.Must(template.ParseFS(files, "page.html"))

func writePage(w http.ResponseWriter, status int, p page) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = pageTemplate.Execute(w, p) // the client went away
}
