package access

import "net/http"

// policy allows nothing but what this server serves, and no script or style inside of pages.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protective are the headers of every answer.
var protective = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
	"Permissions-Policy":           "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}

// overTLS tells browsers to come by TLS for a year.
const overTLS = "max-age=31536000"

// guarded sets the protective headers when an answer begins, because handlers remove some: http.ServeFileFS takes
// Cache-Control away from its errors.
type guarded struct {
	http.ResponseWriter
	secure bool
	begun  bool
}

func (g *guarded) protect() {
	h := g.Header()
	for name, value := range protective {
		h.Set(name, value)
	}
	if g.secure {
		h.Set("Strict-Transport-Security", overTLS)
	}
}

func (g *guarded) WriteHeader(status int) {
	if !g.begun {
		g.protect()
	}
	g.begun = g.begun || status >= 200
	g.ResponseWriter.WriteHeader(status)
}

func (g *guarded) Write(b []byte) (int, error) {
	if !g.begun {
		g.WriteHeader(http.StatusOK)
	}
	return g.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController: deadlines and flushing.
func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }
