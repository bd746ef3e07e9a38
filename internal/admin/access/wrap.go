package access

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// What everybody may reach, by exactly these paths.
const (
	pathHealth  = "/healthz"
	pathReady   = "/readyz"
	pathStyle   = "/static/style.css"
	pathIcon    = "/static/icon.svg" // browsers ask for one with every page; without a link to it they complain
	pathSignIn  = "/sign-in"
	pathSignOut = "/sign-out"
)

// Wrap lets through to next what may pass, with the [Actor] in the request's context (see [From]) and the whole body read.
// The pages /sign-in and /sign-out are its own. /healthz, /readyz, /static/style.css and /static/icon.svg reach next from
// anybody, without an Actor, with GET or HEAD.
func (a *Access) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(plain http.ResponseWriter, r *http.Request) {
		p := a.peerOf(r)
		w := &guarded{ResponseWriter: plain, secure: p.secure}
		w.protect()
		refused := a.gate(r, p)
		if refused == nil {
			refused = a.route(w, r, p, next)
		}
		if refused != nil {
			a.refuse(w, r, p, refused)
		}
	})
}

// gate is everything that can be said without asking who it is.
func (a *Access) gate(r *http.Request, p peer) *refusal {
	probe := r.URL.Path == pathHealth || r.URL.Path == pathReady
	switch {
	case !knownMethod(r.Method):
		return &refusal{status: http.StatusMethodNotAllowed, allow: knownMethods, text: textMethod}
	case !cleanPath(r.URL):
		return &refusal{status: http.StatusBadRequest, text: textPath}
	case !p.secure && !p.forward && !probe:
		return &refusal{status: http.StatusForbidden, text: textPlain, log: "plain HTTP from the network"}
	}
	if err := a.origin.Check(r); err != nil {
		return &refusal{status: http.StatusForbidden, text: textOrigin, log: "write from another site"}
	}
	return nil
}

func (a *Access) route(w http.ResponseWriter, r *http.Request, p peer, next http.Handler) *refusal {
	proxied, err := a.config.Proxy.actorOf(r, p)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errNotAProxy) {
			status = http.StatusForbidden
		}
		return &refusal{status: status, text: textHeader, log: err.Error()}
	}
	switch r.URL.Path {
	case pathHealth, pathReady, pathStyle, pathIcon:
		if isWrite(r.Method) {
			return notAllowed("GET, HEAD")
		}
		next.ServeHTTP(w, r)
		return nil
	case pathSignIn:
		return a.signIn(w, r, p)
	case pathSignOut:
		return a.signOut(w, r, p)
	}
	actor, refused := a.who(w, r, p, proxied)
	if refused != nil {
		return refused
	}
	return a.pass(w, r, next, actor)
}

// pass holds what an actor may do, and how much he may send.
func (a *Access) pass(w http.ResponseWriter, r *http.Request, next http.Handler, actor Actor) *refusal {
	r = r.WithContext(context.WithValue(r.Context(), actorKey{}, actor))
	if !isWrite(r.Method) {
		r.Body = http.NoBody
		next.ServeHTTP(w, r)
		return nil
	}
	if !actor.MayAct() {
		return &refusal{status: http.StatusForbidden, text: textViewer, log: "write by a viewer", actor: actor}
	}
	body, refused := a.readBody(w, r)
	if refused != nil {
		return refused
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	next.ServeHTTP(w, r)
	return nil
}

// readBody reads a whole body, so that no handler has to think of long ones and slow ones.
func (a *Access) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	long := &refusal{status: http.StatusRequestEntityTooLarge, text: textLong + strconv.FormatInt(a.config.MaxBody, 10) + " bytes."}
	if r.ContentLength > a.config.MaxBody {
		return nil, long
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.config.MaxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, long
	case err != nil:
		return nil, &refusal{status: http.StatusBadRequest, text: textBody}
	}
	return body, nil
}

// who says who it is: by the proxy, by a token, by a session, in this order. A token that is wrong does not fall back to
// a session.
func (a *Access) who(w http.ResponseWriter, r *http.Request, p peer, proxied Actor) (Actor, *refusal) {
	if proxied.Name != "" {
		return proxied, nil
	}
	if a.users == nil {
		return Actor{}, &refusal{status: http.StatusUnauthorized, text: textOnlyProxy}
	}
	users, refused := a.currentUsers(r)
	if refused != nil {
		return Actor{}, refused
	}
	if given := r.Header.Values("Authorization"); len(given) > 0 {
		token, ok := bearer(only(given))
		if u, found := findToken(users, token); ok && found {
			return u.actor(), nil
		}
		return Actor{}, &refusal{status: http.StatusUnauthorized, text: textToken, log: "wrong token", bearer: true}
	}
	if u, ok := a.session(w, r, p, users); ok {
		return u.actor(), nil
	}
	return Actor{}, &refusal{status: http.StatusUnauthorized, text: textSignIn, signIn: true}
}

// currentUsers also ends the sessions of those who are no longer there.
func (a *Access) currentUsers(r *http.Request) ([]User, *refusal) {
	users, changed, err := a.users.current()
	if changed {
		a.sessions.keepOnly(users)
		if err != nil {
			a.log.ErrorContext(r.Context(), "users' file: nobody is let in", "error", err)
		} else {
			a.log.InfoContext(r.Context(), "users' file: read again", "users", len(users))
		}
	}
	if err != nil {
		return nil, &refusal{status: http.StatusServiceUnavailable, text: textUsers}
	}
	return users, nil
}

// session is the user of the request's cookie, as the users' file has him now.
func (a *Access) session(w http.ResponseWriter, r *http.Request, p peer, users []User) (User, bool) {
	id, ok := sessionID(r, p)
	if !ok {
		return User{}, false
	}
	then, fresh, ok := a.sessions.find(id, usesSession(r), a.config.now())
	if !ok {
		return User{}, false
	}
	// currentUsers has ended those of earlier changes, but a sign-in may have read the file before one and end after it.
	u, ok := findUser(users, then.Name)
	if !ok || u.password != then.password {
		a.sessions.end(id)
		return User{}, false
	}
	if fresh != "" {
		http.SetCookie(w, cookie(p, fresh))
	}
	return u, true
}

// usesSession leaves out what a page fetches by itself: an open page must not keep its session alive for ever.
func usesSession(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate" || isWrite(r.Method)
}

// retryAfter is whole seconds, rounded up.
func retryAfter(wait time.Duration) string {
	return strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
}
