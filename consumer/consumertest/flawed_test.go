package consumertest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/consumer/consumertest"
)

// flawed names the kind that the test binary breaks as a child of itself.
const flawed = "CONSUMERTEST_FLAWED"

// flaw is a mistake that people make, and what the kit says about it.
type flaw struct {
	make  func(*consumer.Kind[parcel, label], *client)
	story string // that shows it
	says  string
}

var flaws = map[string]flaw{
	"a random key": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Key = func(p parcel) (string, error) { return fmt.Sprint(p.Order, rand.Int64()), nil }
	}, "key", "it is random"},
	"the time in the key": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Key = func(p parcel) (string, error) { return p.Order + time.Now().Format(time.TimeOnly), nil }
	}, "key", "it contains the time"},
	"a volatile member in the key": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Key = func(p parcel) (string, error) { return p.Order + p.Sent, nil }
	}, "key", `The key depends on "sent_at"`},
	"a hash of the job in the key": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Key = func(p parcel) (string, error) {
			p.Sent = ""
			body, err := json.Marshal(p)
			return fmt.Sprintf("%x", sha256.Sum256(body)), err
		}
	}, "key", "it is a hash of the whole job"},
	"one key for all": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Key = func(parcel) (string, error) { return "parcel", nil }
	}, "key", "have the same key"},
	"the attempt in the key": {func(k *consumer.Kind[parcel, label], c *client) {
		k.Lookup = nil
		k.Perform = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			return c.book(ctx, fmt.Sprint(a.ProviderKey, "-", a.Number), a.Job)
		}
	}, "the answer is lost", "is charged 2 times. The provider got the idempotency key"},
	"no key sent": {func(k *consumer.Kind[parcel, label], c *client) {
		k.Lookup = nil
		n := 0
		k.Perform = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			n++ // the fake's way to keep no key
			return c.book(ctx, "x"+strings.Repeat(" ", n)+fmt.Sprint(rand.Int64()), a.Job)
		}
	}, "a server error after the effect", "is charged 2 times"},
	"a timeout treated as failure": {func(k *consumer.Kind[parcel, label], c *client) {
		c.http.Timeout = 500 * time.Millisecond
		k.Perform = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			l, err := c.book(ctx, a.ProviderKey, a.Job)
			if errors.Is(err, context.DeadlineExceeded) {
				return l, consumer.Refused(err)
			}
			return l, err
		}
	}, "the answer is late", "is told that it was declined"},
	"state in memory": {func(k *consumer.Kind[parcel, label], c *client) {
		var done sync.Map
		k.Lookup = nil
		k.Perform = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			key, _ := done.LoadOrStore(a.Key, fmt.Sprint(rand.Int64()))
			return c.book(ctx, fmt.Sprint(key), a.Job)
		}
	}, "the process dies after the effect", "is charged 2 times"},
	"a look-up that finds nothing": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Lookup = func(context.Context, *consumer.Attempt[parcel]) (label, consumer.Verdict, error) {
			return label{}, consumer.Absent, nil
		}
	}, "the answer is lost", "The look-up says Absent about an effect that exists"},
	"a look-up that guesses": {func(k *consumer.Kind[parcel, label], c *client) {
		k.Lookup = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, consumer.Verdict, error) {
			l, v, err := c.find(ctx, a.ProviderKey)
			if err != nil {
				return l, consumer.Absent, nil
			}
			return l, v, nil
		}
	}, "look-ups fail", "that is a guess"},
	"a Commit that ignores refusals": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.Commit = func(w *consumer.Writes, f consumer.Final[parcel, label]) error {
			w.Exec(`insert into parcels.labels values ($1, $2)`, f.Job.Order, f.ExternalID)
			return nil
		}
	}, "the provider refuses", "Commit does the same for a refused job"},
	"a Commit that ignores what is out of date": {func(k *consumer.Kind[parcel, label], _ *client) {
		one := int64(1)
		k.Entity = func(p parcel) (string, consumer.Version) { return p.Order, consumer.Version{Number: &one} }
		k.Commit = func(w *consumer.Writes, f consumer.Final[parcel, label]) error {
			if f.Refused == "" {
				w.Exec(`insert into parcels.labels values ($1, $2)`, f.Job.Order, f.ExternalID)
			}
			return nil
		}
	}, "nothing goes wrong", "booked over a newer one"},
	"requests that do not pass the gate": {func(_ *consumer.Kind[parcel, label], c *client) {
		c.http.Transport = nil
	}, "nothing goes wrong", "no request passed the send gate"},
	"a refusal treated as an error": {func(k *consumer.Kind[parcel, label], c *client) {
		k.Perform = func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			l, err := c.book(ctx, a.ProviderKey, a.Job)
			if err != nil {
				return l, fmt.Errorf("no luck: %s", err.Error())
			}
			return l, nil
		}
	}, "the provider refuses", "each refused job is tried again"},
	"no external id": {func(k *consumer.Kind[parcel, label], _ *client) {
		k.ExternalID = func(label) string { return "" }
	}, "nothing goes wrong", "has no external id"},
}

// Each mistake is caught, in words that say what it would have done. A kit that fails is a test that fails, so it runs in a
// child.
func TestFlaws(t *testing.T) {
	t.Parallel()
	for name, f := range flaws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), self, "-test.timeout=3m",
				"-test.run=^TestTheFlawedOne$/^"+strings.ReplaceAll(f.story, " ", "_")+"$")
			child.Env = append(os.Environ(), flawed+"="+name)
			out, err := child.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), f.says) {
				t.Errorf("not caught (%v), want %q in:\n%s", err, f.says, out)
			}
		})
	}
}

// TestTheFlawedOne breaks the kind that the environment names; without one there is nothing to break.
func TestTheFlawedOne(t *testing.T) {
	t.Parallel()
	f, ok := flaws[os.Getenv(flawed)]
	if !ok {
		return
	}
	consumertest.Break(t, subject(f.make))
}
