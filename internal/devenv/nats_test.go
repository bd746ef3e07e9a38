//go:build !nodemo

package devenv

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestNATSServesAndIsGoneAfterStop(t *testing.T) {
	n, err := StartNATS(NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, n.URL(), "one")
	assertHealthy(t, n.MonitorURL())
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	assertNoFolder(t, n.folder.path)
	if nc, err := nats.Connect(n.URL()); err == nil {
		nc.Close()
		t.Error("the server answers after Stop")
	}
	if err := n.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestNATSKeepsTheFilesOfTheCaller(t *testing.T) {
	options := NATSOptions{Dir: filepath.Join(t.TempDir(), "store"), SyncAlways: true}
	for want := range 2 {
		n, err := StartNATS(options)
		if err != nil {
			t.Fatal(err)
		}
		if got := stored(t, n.URL()); got != want {
			t.Errorf("%d messages, want %d", got, want)
		}
		publish(t, n.URL(), "one")
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNATSSaysAtOnceWhyItDoesNotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file)
	for want, options := range map[string]NATSOptions{
		"address already in use": {Port: portOf(t, taken)},
		"not a directory":        {Dir: file},
	} {
		begin := time.Now()
		n, err := StartNATS(options)
		if err == nil {
			t.Fatal(n.Stop(), "started")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if time.Since(begin) > startLimit/2 {
			t.Errorf("%q came after %s", want, time.Since(begin))
		}
	}
}

func TestNATSProcessKeepsMessagesOverSIGKILL(t *testing.T) {
	n := startNATSProcessFor(t, NATSOptions{})
	url := n.URL()
	publish(t, url, "one", "two", "three")
	n.Kill()
	if nc, err := nats.Connect(url); err == nil {
		nc.Close()
		t.Fatal("the server answers after Kill")
	}
	for range 2 { // after a crash, and while it runs
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.URL() != url {
			t.Errorf("the URL went from %s to %s", url, n.URL())
		}
		if got := stored(t, url); got != 3 {
			t.Errorf("%d messages after the restart, want 3", got)
		}
	}
	assertHealthy(t, n.MonitorURL())
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	assertNoFolder(t, n.folder.path)
	n.Kill()
	if err := n.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := n.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop worked")
	}
}

func TestNATSProcessOnTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Join(t.TempDir(), "store")
	port := portOf(t, taken)
	_, err = StartNATSProcess(t.Context(), NATSOptions{Dir: dir, Port: port})
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want the reason", err)
	}
	assertFolder(t, dir)
}

func TestNATSProcessStartIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("changed my mind")
	cancel(reason)
	if _, err := StartNATSProcess(ctx, NATSOptions{}); !errors.Is(err, reason) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func TestNATSProcessWantsRunChild(t *testing.T) {
	childrenAllowed.Store(false)
	defer childrenAllowed.Store(true)
	if _, err := StartNATSProcess(t.Context(), NATSOptions{}); err == nil || !strings.Contains(err.Error(), "RunChild") {
		t.Errorf("got %v, want to be told to call RunChild", err)
	}
}

func startNATSProcessFor(t *testing.T, options NATSOptions) *NATSProcess {
	t.Helper()
	n, err := StartNATSProcess(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func portOf(t *testing.T, l net.Listener) int {
	t.Helper()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%s is no TCP address", l.Addr())
	}
	return addr.Port
}

func publish(t *testing.T, url string, messages ...string) {
	t.Helper()
	withStream(t, url, func(js jetstream.JetStream, _ jetstream.Stream) {
		for _, m := range messages {
			if _, err := js.Publish(t.Context(), "kept", []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func stored(t *testing.T, url string) int {
	t.Helper()
	var n int
	withStream(t, url, func(_ jetstream.JetStream, s jetstream.Stream) {
		n = int(s.CachedInfo().State.Msgs)
	})
	return n
}

func withStream(t *testing.T, url string, do func(jetstream.JetStream, jetstream.Stream)) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
	if err != nil {
		t.Fatal(err)
	}
	do(js, s)
}

func assertHealthy(t *testing.T, monitor string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(monitor + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %s", answer.Status)
	}
}
