package access

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testCost = 4 // the least of bcrypt
	secret   = "correct horse battery"
)

var (
	annHash, _ = hashPassword(secret, testCost)
	ann        = User{Name: "ann", Role: Operator, password: annHash}
	vic        = User{Name: "vic", Role: Viewer, password: annHash}
	botToken   = tokenPrefix + randomText()
	bot        = User{Name: "bot", Role: Operator, token: digestOf(botToken)}
	peekToken  = tokenPrefix + randomText()
	peek       = User{Name: "peek", Role: Viewer, token: digestOf(peekToken)}
)

// screen is a real server behind an Access, and a handler that counts what reached it.
type screen struct {
	t       *testing.T
	url     string
	users   string
	access  *Access
	reached atomic.Int64 // requests that the handler saw
	acts    atomic.Int64 // of these, writes
	body    atomic.Value // of the last one
	mu      sync.Mutex
	clock   time.Time
	log     *lines
}

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func open(t *testing.T, change func(*Config)) *screen {
	t.Helper()
	s := &screen{t: t, users: filepath.Join(t.TempDir(), "users"), clock: time.Now(), log: &lines{}}
	s.write(ann, vic, bot, peek)
	c := Config{Users: s.users, Logger: slog.New(slog.NewTextHandler(s.log, nil)), now: s.now, cost: testCost}
	if change != nil {
		change(&c)
	}
	var err error
	if s.access, err = New(c); err != nil {
		t.Fatal(err)
	}
	server, err := s.access.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = server.URL()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, s) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// ServeHTTP takes the headers away, as careless handlers do.
func (s *screen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.reached.Add(1)
	if isWrite(r.Method) {
		s.acts.Add(1)
	}
	body, _ := io.ReadAll(r.Body)
	s.body.Store(string(body))
	for name := range protective {
		w.Header().Del(name)
	}
	if r.URL.Path == "/missing" {
		http.NotFound(w, r)
		return
	}
	actor := From(r.Context())
	fmt.Fprintf(w, "%s %s %s", actor.Name, actor.Role, actor.Via)
}

func (s *screen) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *screen) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// write replaces the users' file as the commands do.
func (s *screen) write(users ...User) {
	s.t.Helper()
	var text []byte
	for _, u := range users {
		text = append(append(text, u.line()...), '\n')
	}
	if err := os.WriteFile(s.users+".new", text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.users+".new", s.users); err != nil {
		s.t.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *screen) send(method, path, body string, header ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	// Without DisableKeepAlives an idle connection would outlive the test.
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	got := answer{response.StatusCode, response.Header, string(text)}
	s.protected(method+" "+path, got)
	return got
}

// raw sends bytes as they are and returns the answer.
func (s *screen) raw(request string) answer {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}
}

// protected is checked on every answer of every test.
func (s *screen) protected(what string, got answer) {
	s.t.Helper()
	for name, value := range protective {
		if found := got.header.Values(name); len(found) != 1 || found[0] != value {
			s.t.Errorf("%s (%d): %s is %q", what, got.status, name, found)
		}
	}
}

func (s *screen) signIn(name, password string, header ...string) answer {
	s.t.Helper()
	form := url.Values{"name": {name}, "password": {password}, "next": {"/task/1"}}
	return s.send(http.MethodPost, pathSignIn, form.Encode(), append([]string{"Content-Type", formType}, header...)...)
}

// session signs in and returns the cookie.
func (s *screen) session(name string, header ...string) string {
	s.t.Helper()
	got := s.signIn(name, secret, header...)
	if got.status != http.StatusSeeOther {
		s.t.Fatalf("sign-in: %d %s", got.status, got.body)
	}
	return cookieOf(got)
}

func cookieOf(a answer) string {
	value, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return value
}

// want compares the status.
func (s *screen) want(what string, got answer, status int) {
	s.t.Helper()
	if got.status != status {
		s.t.Errorf("%s: %d, want %d: %.200s", what, got.status, status, got.body)
	}
}
