package access

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// Each attack comes with everything that a browser of a signed-in operator would add. None may reach the handler.
func TestWritesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	cookie := s.session("ann")
	for _, kind := range []string{"", formType, "text/plain", "multipart/form-data; boundary=x", "application/json"} {
		for _, from := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Sec-Fetch-Site", "cross-site", "Origin", s.url},
			{"Sec-Fetch-Site", "SAME-ORIGIN"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
			{"Origin", s.url + ".evil.example"},
		} {
			header := append([]string{"Cookie", cookie}, from...)
			if kind != "" {
				header = append(header, "Content-Type", kind)
			}
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				s.want(method+" "+strings.Join(header[2:], " "), s.send(method, "/task/1/retry", "reason=x", header...), http.StatusForbidden)
			}
			s.want("sign out", s.send("POST", pathSignOut, "", header...), http.StatusForbidden)
			s.want("sign in as another", s.send("POST", pathSignIn, "name=vic&password=x", header...), http.StatusForbidden)
		}
	}
	if n := s.reached.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	own := s.send("POST", "/task/1/retry", "reason=x", "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Origin", s.url)
	s.want("the page's own", own, http.StatusOK)
	if s.body.Load() != "reason=x" {
		t.Errorf("the handler read %q", s.body.Load())
	}
}

func TestPathsAndMethodsGoAroundNothing(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	for _, line := range []string{
		"GET / ", "GET //task/1", "GET /task/1", "GET /healthz/../task/1", "GET /healthz/%2e%2e/task/1", "GET /healthz/.%2E/task/1",
		"GET /./task/1", "GET /task//1", "GET /healthz/", "GET /HEALTHZ", "GET /healthz%2f..%2ftask/1", "GET /healthz;/task/1",
		"GET /healthz%00", "GET /static/style.css/../../task/1", "GET /static/style.css/", "GET /static/../task/1", "GET /static/other.css",
		"GET /sign-in/../task/1", "GET /sign-in/", "GET /api/tasks/1", "GET /healthz\\..\\task", "GET http://evil.example/task/1",
		"POST /healthz", "DELETE /static/style.css", "HEAD /task/1", "OPTIONS /task/1", "OPTIONS *", "TRACE /task/1", "CONNECT /task/1",
		"PROPFIND /task/1", "get /healthz", "GET /sign-out", "POST /task/1/retry", "CONNECT evil.example:443",
	} {
		got := s.raw(strings.TrimSpace(line) + " HTTP/1.1\r\nHost: settle\r\nConnection: close\r\nX-HTTP-Method-Override: GET\r\n" +
			"X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n\r\n")
		if got.status < 300 {
			t.Errorf("%s: %d %s", line, got.status, got.body)
		}
		if got.status != http.StatusBadRequest || got.header.Get("X-Frame-Options") != "" { // net/http itself refuses what is no HTTP
			s.protected(line, got)
		}
	}
	if n := s.reached.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	for _, path := range []string{pathHealth, pathReady, pathStyle} {
		if got := s.send("GET", path, ""); got.status != http.StatusOK || strings.TrimSpace(got.body) != "" {
			t.Errorf("%s: %d, actor %q", path, got.status, got.body)
		}
	}
	s.want("an escaped slash of a key", s.send("GET", "/task/contact.sync%2Fcrm_contact_1%2F%2Fv7", "", "Authorization", "Bearer "+botToken), http.StatusOK)
	for _, path := range []string{"/task//1", "/task/%2e%2e/1", "/./task", "//task"} {
		s.want(path, s.send("GET", path, "", "Authorization", "Bearer "+botToken), http.StatusBadRequest)
	}
	s.want("nothing there", s.send("GET", "/missing", "", "Authorization", "Bearer "+botToken), http.StatusNotFound)
}

func TestViewersChangeNothing(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	cookie := s.session("vic")
	for _, who := range [][]string{{"Cookie", cookie}, {"Authorization", "Bearer " + peekToken}} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			s.want("a viewer's "+method, s.send(method, "/task/1/retry", "", who...), http.StatusForbidden)
		}
		override := append([]string{"X-HTTP-Method-Override", "POST"}, who...)
		s.want("a viewer's look", s.send("GET", "/task/1?_method=POST", "", override...), http.StatusOK)
	}
	if n := s.acts.Load(); n != 0 {
		t.Errorf("viewers acted %d times", n)
	}
	if log := s.log.String(); !strings.Contains(log, `reason="write by a viewer"`) || !strings.Contains(log, "actor=vic") {
		t.Errorf("the log does not say so: %s", log)
	}
}

func TestHeadersOfProxiesAreNotForEverybody(t *testing.T) {
	t.Parallel()
	header := func(from string) func(*Config) {
		return func(c *Config) {
			c.Proxy = Proxy{From: []netip.Prefix{netip.MustParsePrefix(from)}, UserHeader: "X-User", GroupsHeader: "X-Groups", OperatorGroup: "ops"}
		}
	}
	far, near := open(t, header("10.0.0.0/8")), open(t, header("127.0.0.1/32"))
	for _, h := range [][]string{
		{"X-User", "ann"}, {"x-user", "ann"}, {"X-User", ""}, {"X-Groups", "ops"}, {"X-User", "ann", "X-Forwarded-For", "10.0.0.1"},
		{"X-User", "ann", "X-Real-IP", "10.0.0.1", "Forwarded", "for=10.0.0.1"}, {"X-User", "vic", "Authorization", "Bearer " + botToken},
	} {
		far.want(strings.Join(h, " "), far.send("GET", "/task/1", "", h...), http.StatusForbidden)
	}
	for _, h := range [][]string{
		{"X-User", "ann", "X-User", "eve"}, {"X-User", "ann", "X-Groups", "a", "X-Groups", "ops"}, {"X-User", "eve,ann"}, {"X-User", ""},
		{"X-User", strings.Repeat("a", 129)}, {"X-User", "a\xff"},
	} {
		near.want(strings.Join(h, " "), near.send("GET", "/task/1", "", h...), http.StatusBadRequest)
	}
	if n := far.reached.Load() + near.reached.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	if log := far.log.String(); !strings.Contains(log, "no listed proxy") || strings.Contains(log, botToken) {
		t.Errorf("the log: %s", log)
	}
	for groups, want := range map[string]string{"": "eve viewer proxy", "opsx, xops": "eve viewer proxy", "a, ops": "eve operator proxy"} {
		if got := near.send("GET", "/task/1", "", "X-User", "eve", "X-Groups", groups); got.body != want {
			t.Errorf("groups %q: %s, want %s", groups, got.body, want)
		}
	}
	near.want("a viewer behind the proxy", near.send("POST", "/task/1/retry", "", "X-User", "eve"), http.StatusForbidden)
}

func TestLongRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	token := "Authorization: Bearer " + botToken + "\r\n"
	long := strings.Repeat("a", DefaultMaxBody+1)
	s.want("long", s.send("POST", "/task/1/note", long, "Authorization", "Bearer "+botToken), http.StatusRequestEntityTooLarge)
	s.want("long, at sign-in", s.send("POST", pathSignIn, long, "Content-Type", formType), http.StatusRequestEntityTooLarge)
	head := "POST /task/1/note HTTP/1.1\r\nHost: settle\r\nConnection: close\r\n" + token
	s.want("long in chunks", s.raw(head+"Transfer-Encoding: chunked\r\n\r\n10001\r\n"+long+"\r\n0\r\n\r\n"), http.StatusRequestEntityTooLarge)
	s.want("a long header", s.raw(head+"X-Long: "+long+"\r\n\r\n"), http.StatusRequestHeaderFieldsTooLarge)
	s.want("two lengths", s.raw(head+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), http.StatusBadRequest)
	if n := s.reached.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	s.want("just fits", s.send("POST", "/task/1/note", long[1:], "Authorization", "Bearer "+botToken), http.StatusOK)
}

func TestAfterSignInOnlyLocalPaths(t *testing.T) {
	t.Parallel()
	for _, next := range []string{
		"", "//evil", `/\evil`, `\\evil`, "https://evil", "https:evil", "http:/evil", "javascript:alert(1)", "data:text/html,x", "evil", "///evil",
		"/\t/evil", "/\n/evil", "\t//evil", " //evil", "/%2f/evil", "/%2Fevil", "/%5cevil", "/%255cevil", "/%252fevil", "/%09/evil", "/%0d%0aSet-Cookie:x",
		"//evil@settle", "/..//evil", "/.//evil", "/x/../..//evil", "/%2e%2e//evil", "?next=//evil", "#x", "/sign-out", "/sign-in?next=//evil",
		"/\u0085/evil", "/" + strings.Repeat("a", longestNext), "/%zz", "/\x00",
	} {
		if got := localPath(next); got != "/" {
			t.Errorf("%q leads to %q", next, got)
		}
	}
	for _, next := range []string{"/", "/task/1", "/find?q=a%2Fb&x=//y", "/task/contact.sync%2Fcrm_contact_1%2F%2Fv7"} {
		if got := localPath(next); got != next {
			t.Errorf("%q became %q", next, got)
		}
	}
}
