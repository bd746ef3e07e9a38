package consumer

import (
	"errors"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// A body that is too large is refused by the publisher, with what to do about it: by the limit of Settle, which a kind may
// raise for its publishers and workers, and by that of the server.
func TestPublishTooLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sized := func(n int) []byte { return []byte(`{"order":"1","note":"` + strings.Repeat("x", n) + `"}`) }
	for name, c := range map[string]struct {
		kind Definition
		size int
		says []string // of the refusal; none: it is stored
	}{
		"default":           {b.kind, 300 << 10, []string{"limit 262144", "split the job", "SETTLE_MAX_BODY", "Content.MaxBody", "max_payload"}},
		"raised":            {WithMaxBody(b.kind, 400<<10), 300 << 10, nil},
		"raised, and above": {WithMaxBody(b.kind, 400<<10), 500 << 10, []string{"limit 409600"}},
		"lowered":           {WithMaxBody(b.kind, 100), 100, []string{"limit 100"}},
		"unchanged":         {WithMaxBody(b.kind, 0), 300 << 10, []string{"limit 262144"}},
		"above the server's": {WithMaxBody(b.kind, 4<<20), 2 << 20,
			[]string{"max_payload of the NATS server is 1048576", "split the job"}},
	} {
		out, err := PublishRaw(t.Context(), b.js, c.kind, sized(c.size), nil)
		if len(c.says) == 0 {
			if err != nil || out.Outcome != PublishStored {
				t.Errorf("%s: %+v (%v), want stored", name, out, err)
			}
			continue
		}
		refused, ok := errors.AsType[*InvalidJobError](err)
		if !ok || refused.Reason != idemstore.TooLarge {
			t.Errorf("%s: %+v (%v), want a refusal as too large", name, out, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(refused.Detail, text) {
				t.Errorf("%s: %q is not in %q", name, text, refused.Detail)
			}
		}
	}
}

// The limit of a kind goes before that of its worker.
func TestBodyLimitOfAKindAtAWorker(t *testing.T) {
	t.Parallel()
	kind := (&payProvider{}).kind()
	kind.Content.MaxBody = 2000
	d, err := kind.define()
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"order":"1","note":"` + strings.Repeat("x", 1000) + `"}`)
	if _, err := d.read(body, 500); err != nil {
		t.Errorf("above the worker's limit and below the kind's: %v", err)
	}
	kind.Content.MaxBody = 0
	if d, err = kind.define(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.read(body, 500); err == nil || !strings.Contains(err.Error(), "limit 500") {
		t.Errorf("above the worker's limit: %v", err)
	}
}

// A job inside a job is read as a message of its kind is.
func TestReadJob(t *testing.T) {
	t.Parallel()
	j, err := ReadJob((&payProvider{}).kind(), []byte(`{"order": 17, "note": "n"}`))
	if want := (payJob{Order: NewID("17"), Note: "n"}); err != nil || j != want {
		t.Errorf("read %+v (%v), want %+v", j, err, want)
	}
	for body, reason := range map[string]idemstore.Reason{
		`17`: idemstore.Malformed, `{"Order": "17"}`: idemstore.Malformed, `{"note": "n"}`: idemstore.BadKey,
		`{"order": "a\u0000b"}`: idemstore.BadKey,
	} {
		j, err := ReadJob((&payProvider{}).kind(), []byte(body))
		if refused, ok := errors.AsType[*InvalidJobError](err); !ok || refused.Reason != reason || j != (payJob{}) {
			t.Errorf("%s: %+v, %v; want a refusal: %s", body, j, err, reason)
		}
	}
}
