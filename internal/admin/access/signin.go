package access

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	formType  = "application/x-www-form-urlencoded"
	hashLimit = 10 * time.Second // for a turn to hash a password
)

func (a *Access) signIn(w http.ResponseWriter, r *http.Request, p peer) *refusal {
	switch {
	case a.users == nil:
		return &refusal{status: http.StatusNotFound, text: textOnlyProxy}
	case !isWrite(r.Method):
		writePage(w, http.StatusOK, page{Form: true, Next: localPath(r.URL.Query().Get("next"))})
		return nil
	case r.Method != http.MethodPost:
		return notAllowed("GET, HEAD, POST")
	}
	form, refused := a.readForm(w, r)
	if refused != nil {
		return refused
	}
	users, refused := a.currentUsers(r)
	if refused != nil {
		return refused
	}
	name, next := canonical(form.Get("name")), localPath(form.Get("next"))
	u, denied := a.tryPassword(r.Context(), users, name, form.Get("password"), p)
	if denied != nil {
		if denied.wait > 0 {
			w.Header().Set("Retry-After", retryAfter(denied.wait))
		}
		writePage(w, denied.status, page{Form: true, Next: next, Error: denied.text})
		return nil
	}
	if old, ok := sessionID(r, p); ok {
		a.sessions.end(old) // a browser has one session, and never one that somebody else gave it
	}
	http.SetCookie(w, cookie(p, a.sessions.start(u, a.config.now())))
	a.log.InfoContext(r.Context(), "signed in", "actor", u.Name, "role", u.Role, "via", ViaPassword, "address", p.client)
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// readForm takes no other type: a page of another site can send text/plain without asking.
func (a *Access) readForm(w http.ResponseWriter, r *http.Request) (url.Values, *refusal) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != formType {
		return nil, &refusal{status: http.StatusUnsupportedMediaType, text: textForm}
	}
	body, refused := a.readBody(w, r)
	if refused != nil {
		return nil, refused
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest, text: textBody}
	}
	return form, nil
}

// denial is why a password let nobody in, in the words that the person reads: the same for all names.
type denial struct {
	status int
	text   string
	wait   time.Duration
}

func (a *Access) tryPassword(ctx context.Context, users []User, name, password string, p peer) (User, *denial) {
	u, known := findUser(users, name)
	log := a.log.With("address", p.client)
	if known { // an unknown name may be a password in the wrong box
		log = log.With("actor", u.Name)
	}
	if len(name) > 64 {
		name = name[:64] // what is tracked is bounded; no user has such a name
	}
	wait, first := a.attempts.begin(name, p.client, a.config.now())
	if wait > 0 {
		if first {
			log.WarnContext(ctx, "sign-in refused", "reason", "too many failures", "known", known, "wait", wait)
		}
		return u, &denial{http.StatusTooManyRequests, textWait, wait}
	}
	right, turn := a.compare(ctx, u, password)
	switch {
	case !turn:
		log.WarnContext(ctx, "sign-in refused", "reason", "busy with other sign-ins", "known", known)
		return u, &denial{http.StatusServiceUnavailable, textBusy, time.Second}
	case !right:
		log.WarnContext(ctx, "sign-in refused", "reason", "wrong name or password", "known", known)
		return u, &denial{status: http.StatusUnauthorized, text: textWrong}
	}
	a.attempts.succeed(name, p.client, a.config.now())
	return u, nil
}

// compare does the same work for everybody: a user who does not exist, or who has a token, has a password that nobody
// knows. turn is false if too many others are being compared.
func (a *Access) compare(ctx context.Context, u User, password string) (right, turn bool) {
	limit := time.NewTimer(hashLimit)
	defer limit.Stop()
	select {
	case a.hashing <- struct{}{}:
	case <-limit.C:
		return false, false
	case <-ctx.Done():
		return false, false
	}
	defer func() { <-a.hashing }()
	hash := u.password
	if hash == "" {
		hash = a.nobody
	}
	// bcrypt would compare only the beginning of a longer password.
	long := len(password) > MaxPassword
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password[:min(len(password), MaxPassword)]))
	return err == nil && !long && u.password != "", true
}

func (a *Access) signOut(w http.ResponseWriter, r *http.Request, p peer) *refusal {
	if r.Method != http.MethodPost {
		return notAllowed("POST")
	}
	if id, ok := sessionID(r, p); ok {
		if u, ok := a.sessions.end(id); ok {
			a.log.InfoContext(r.Context(), "signed out", "actor", u.Name, "address", p.client)
		}
	}
	gone := cookie(p, "")
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	if a.users == nil {
		return &refusal{status: http.StatusOK, text: textLeaveProxy}
	}
	http.Redirect(w, r, pathSignIn, http.StatusSeeOther)
	return nil
}

const cookieName = "settle_session"

// cookie is strict about who may set and send it: __Host- keeps out cookies that a neighbouring host or plain HTTP set.
// Lax, so that a link from elsewhere to a task finds the reader signed in; no GET changes anything. It goes when the
// browser closes; the server's own expiry is what counts.
func cookie(p peer, id string) *http.Cookie {
	return &http.Cookie{
		Name: cookieNameFor(p), Value: id, Path: "/", HttpOnly: true, Secure: p.secure, SameSite: http.SameSiteLaxMode,
	}
}

func cookieNameFor(p peer) string {
	if p.secure {
		return "__Host-" + cookieName
	}
	return cookieName
}

// sessionID is the id in the request's one session cookie. Two of the name are an attempt to slip one in.
func sessionID(r *http.Request, p peer) (string, bool) {
	found := r.CookiesNamed(cookieNameFor(p))
	if len(found) != 1 || found[0].Value == "" {
		return "", false
	}
	return found[0].Value, true
}

func bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(token, tokenPrefix)
}
