package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/notify"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var alert = consumer.Alert{Cause: "needs_review payment.charge absent", Kind: "payment.charge", Text: "somebody has to look", TaskID: 7, Count: 3,
	FirstAt: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC), LastAt: time.Date(2026, 11, 29, 10, 5, 0, 0, time.UTC)}

const body = `{"cause":"needs_review payment.charge absent","kind":"payment.charge","text":"somebody has to look","task":7,"count":3,` +
	`"first_at":"2026-11-29T10:00:00Z","last_at":"2026-11-29T10:05:00Z"}`

// hook answers with these statuses, one after the other, and keeps what came.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	came []string
}

func newHook(t *testing.T, statuses ...int) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.came = append(h.came, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(text))
		status := statuses[min(len(h.came), len(statuses))-1]
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h
}

func newWebhook(t *testing.T, url string) *notify.Webhook {
	t.Helper()
	w, err := notify.NewWebhook(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statuses []int
		calls    int
		fine     bool
	}{
		"takes it":                {[]int{204}, 1, true},
		"takes it a moment later": {[]int{503, 429, 200}, 3, true},
		"never takes it":          {[]int{500}, 3, false},
		"refuses it":              {[]int{404}, 1, false},
		"sends it elsewhere":      {[]int{307}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, c.statuses...)
			err := notify.Func(newWebhook(t, h.URL+"/T0/secret").Tell)(t.Context(), alert)
			if (err == nil) != c.fine || len(h.came) != c.calls {
				t.Errorf("%v after %d calls", err, len(h.came))
			}
			for _, came := range h.came {
				if came != "POST /T0/secret application/json "+body {
					t.Errorf("it got %s", came)
				}
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), h.URL)) {
				t.Errorf("error %q", err)
			}
		})
	}
}

// A webhook that is away, or does not answer, costs its time and no more, and its secrets stay where they are.
func TestWebhookThatIsAway(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	w := newWebhook(t, strings.Replace(closed.URL, "://", "://user:pa55word@", 1)+"/T0/secret?token=secret")
	if err := w.Tell(t.Context(), alert); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "pa55word") {
		t.Errorf("error %v", err)
	}
	if w.String() != closed.URL {
		t.Errorf("it shows itself as %s", w)
	}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or nobody notices that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := newWebhook(t, silent.URL).Tell(ctx, alert); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestWebhookAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "hooks.example/secret", "ftp://secret", "http://", "http://%zz@secret", "https:///secret"} {
		if w, err := notify.NewWebhook(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v", address, w, err)
		}
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	_, js := devtest.JetStream(t)
	got := make(chan *nats.Msg, 1)
	if _, err := js.Conn().ChanSubscribe("events.alerts", got); err != nil {
		t.Fatal(err)
	}
	if err := notify.Subject(js.Conn(), "events.alerts")(t.Context(), alert); err != nil {
		t.Fatal(err)
	}
	var told consumer.Alert
	if m := <-got; json.Unmarshal(m.Data, &told) != nil || told != alert || string(m.Data) != body {
		t.Errorf("it said %s", m.Data)
	}
	js.Conn().Close()
	if err := notify.Subject(js.Conn(), "events.alerts")(t.Context(), alert); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("error %v", err)
	}
}

func TestCheckSubject(t *testing.T) {
	t.Parallel()
	for subject, fine := range map[string]bool{"events.alerts": true, "alerts": true, "": false, "a..b": false, "a b": false, "a.*": false,
		"a.>": false, "jobs.alert": false, "$JS.API": false, ".a": false, "a.": false} {
		if err := notify.CheckSubject(subject); (err == nil) != fine {
			t.Errorf("%q: %v", subject, err)
		}
	}
}

// While one is away the others hear a cause once, however often it is told, and hear it anew when all have heard it.
func TestAllWhileOneIsAway(t *testing.T) {
	t.Parallel()
	var heard []string
	broken := errors.New("broken")
	away := func(context.Context, consumer.Alert) error { return broken }
	tell := notify.All(func(_ context.Context, a consumer.Alert) error { heard = append(heard, a.Cause); return nil },
		func(ctx context.Context, a consumer.Alert) error { return away(ctx, a) })
	for range 3 {
		for _, cause := range []string{"one", "two"} {
			if err := tell(t.Context(), consumer.Alert{Cause: cause}); !errors.Is(err, broken) {
				t.Errorf("%v, want it to be told again", err)
			}
		}
	}
	away = func(context.Context, consumer.Alert) error { return nil }
	for range 2 {
		if err := tell(t.Context(), consumer.Alert{Cause: "one"}); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(heard, " "); got != "one two one" {
		t.Errorf("heard %q", got)
	}
}

// One that fails does not keep an alert from the others.
func TestAll(t *testing.T) {
	t.Parallel()
	if notify.All() != nil {
		t.Error("nobody is somebody")
	}
	calls, broken := 0, errors.New("broken")
	fine := func(context.Context, consumer.Alert) error { calls++; return nil }
	err := notify.All(fine, func(context.Context, consumer.Alert) error { return broken }, fine)(t.Context(), alert)
	if !errors.Is(err, broken) || calls != 2 {
		t.Errorf("%v, %d heard it", err, calls)
	}
	if err := notify.All(fine)(t.Context(), alert); err != nil {
		t.Error(err)
	}
}
