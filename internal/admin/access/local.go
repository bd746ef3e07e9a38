package access

import (
	"net/http"
	"net/url"
	"strings"
)

const longestNext = 2048 // bytes

// localPath is where to go after sign-in: next if it is a path on this server and nothing else, or the first page. What
// browsers take for another host in a path (//evil, /\evil, a tab between the slashes) is refused also when it is escaped.
func localPath(next string) string {
	const first = "/"
	if len(next) > longestNext || strings.ContainsRune(next, '\\') || strings.ContainsFunc(next, isControl) {
		return first
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
		return first
	}
	if !cleanPath(u) || strings.ContainsFunc(u.Path, isControl) {
		return first
	}
	if u.Path == pathSignIn || u.Path == pathSignOut {
		return first
	}
	decoded := u.Path
	for range 3 { // however often somebody behind us may decode it
		if strings.HasPrefix(decoded, "//") || strings.HasPrefix(decoded, `/\`) {
			return first
		}
		if decoded, err = url.PathUnescape(decoded); err != nil {
			break
		}
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}

// cleanPath refuses what two readers of a path could read differently: empty, . and .. segments, escaped or not.
// An escaped slash is allowed, because business keys hold slashes.
func cleanPath(u *url.URL) bool {
	raw, rooted := strings.CutPrefix(u.EscapedPath(), "/")
	if !rooted || strings.ContainsRune(u.Path, 0) {
		return false
	}
	segments := strings.Split(raw, "/")
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if err != nil || text == "." || text == ".." || text == "" && i < len(segments)-1 {
			return false
		}
	}
	return true
}

// isWrite: these may change something, so they need an operator and the right origin.
func isWrite(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// knownMethods leaves out TRACE, which echoes headers, CONNECT, and OPTIONS: no other origin is to be allowed anything.
const knownMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"

func knownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
