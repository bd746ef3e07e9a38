package idemstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// "Not sent" speaks for its own attempt only.
func TestRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	armed := func(t *testing.T, key string) idemstore.Fence {
		f := b.asking(t, key)
		if _, err := b.Arm(t.Context(), armOf(f)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name  string
		start func(*testing.T, string) idemstore.Fence
		want  idemstore.Status
		next  idemstore.Found
	}{
		{"nothing sent so far", b.performing, idemstore.Started, idemstore.Perform},
		{"an earlier attempt may have been applied", b.asking, idemstore.Unknown, idemstore.Ask},
		{"the same, and a resend was armed", armed, idemstore.Unknown, idemstore.Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.start(t, c.name)
			before, lines := b.task(t, f.TaskID), len(b.reasons(t, f.TaskID))
			status, err := b.Release(t.Context(), idemstore.Release{Fence: f, Delay: time.Hour, LastError: "429", ErrorClass: "not_sent",
				Reason: "throttled", Trace: trace})
			if err != nil || status != c.want {
				t.Fatalf("released as %q (%v), want %q", status, err, c.want)
			}
			row := b.task(t, f.TaskID)
			switch {
			case row.Status != c.want, row.LeaseUntil != nil, row.Sending, row.Fence != f:
				t.Errorf("the row: %+v", row)
			case row.Unsure != before.Unsure, row.Failures != before.Failures:
				t.Errorf("a release took back or cost something: %+v", row)
			case (row.FirstSentAt != nil) != before.Unsure, before.Unsure && !row.FirstSentAt.Equal(*before.FirstSentAt):
				t.Errorf("first sent at %v, was %v", row.FirstSentAt, before.FirstSentAt)
			case before.Unsure != (row.LastSentBy != nil), before.Unsure && !row.LastSentBy.Equal(*before.LastSentBy):
				t.Errorf("last sent by %v, was %v", row.LastSentBy, before.LastSentBy)
			case row.LastError != "429", row.ErrorClass != "not_sent":
				t.Errorf("why: %q, %q", row.LastError, row.ErrorClass)
			case len(b.reasons(t, f.TaskID)) != lines+1:
				t.Errorf("audit %q", b.reasons(t, f.TaskID))
			}
			if got := b.expect(t, idemstore.NotDue, claimOf(c.name)); (got.Wait - time.Hour).Abs() > time.Minute {
				t.Errorf("due in %s, want an hour", got.Wait)
			}
			b.set(t, f.TaskID, `next_attempt_at = clock_timestamp()`)
			if got := b.expect(t, c.next, claimOf(c.name)); got.Task.Attempt != f.Attempt+1 || got.Task.Failures != before.Failures {
				t.Errorf("the next attempt: %+v", got.Task)
			}
		})
	}
}

func TestReleaseNeedsTheFence(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, row := range map[string]string{
		"number right, token wrong": ``,
		"token right, number wrong": ``,
		"taken over":                `attempts = 2, token = gen_random_uuid()`,
		"finished":                  `status = 'finished', finished_at = clock_timestamp(), lease_until = null`,
		"parked":                    `status = 'needs_review', lease_until = null`,
	} {
		t.Run(name, func(t *testing.T) {
			f := b.performing(t, name)
			if row != "" {
				b.set(t, f.TaskID, row)
			}
			if wrong, ok := wrongFences(f)[name]; ok {
				f = wrong
			}
			before := b.row(t, f.TaskID)
			if status, err := b.Release(t.Context(), idemstore.Release{Fence: f}); !errors.Is(err, idemstore.ErrLost) {
				t.Errorf("released as %q (%v), want ErrLost", status, err)
			}
			if b.row(t, f.TaskID) != before {
				t.Error("the row changed")
			}
		})
	}
}

// Giving back is right also when the lease is over, as long as nobody else claimed.
func TestReleaseAfterTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.expire(t, f.TaskID)
	if status, err := b.Release(t.Context(), idemstore.Release{Fence: f}); err != nil || status != idemstore.Started {
		t.Errorf("released as %q (%v)", status, err)
	}
	b.expect(t, idemstore.Perform, claimOf("order_1"))
}

func TestReleaseOfNoTask(t *testing.T) {
	t.Parallel()
	f := idemstore.Fence{TaskID: 1, Attempt: 1, Token: uuid.New()}
	if status, err := newBench(t).Release(t.Context(), idemstore.Release{Fence: f}); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("released as %q (%v), want ErrNotFound", status, err)
	}
}

// TestTableRefusesBadRows: what the engine must never write, no hand can write either (D-36).
func TestTableRefusesBadRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	for name, row := range map[string]string{
		"released but sending":                   `lease_until = null, first_sent_at = null`,
		"released but unsure":                    `lease_until = null, sending = false, unsure = true, first_sent_at = null`,
		"released but first sent at some time":   `lease_until = null, sending = false`,
		"lease in the year 2999":                 `lease_until = '2999-01-01'`,
		"lease without end":                      `lease_until = 'infinity'`,
		"unknown with a lease":                   `status = 'unknown', unsure = true`,
		"unknown without unsure":                 `status = 'unknown', lease_until = null`,
		"external id, not final and not unsure":  `external_id = 'ch_1'`,
		"parked with external id and not unsure": `status = 'needs_review', lease_until = null, external_id = 'ch_1'`,
		"finished without time":                  `status = 'finished', lease_until = null`,
		"failed without time":                    `status = 'failed', lease_until = null`,
		"time without finish":                    `finished_at = clock_timestamp()`,
		"finished with a lease":                  `status = 'finished', finished_at = clock_timestamp()`,
		"attempt 0":                              `attempts = 0`,
		"no such status":                         `status = 'done'`,
		"no key":                                 `key = ''`,
		"no kind":                                `kind = ''`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.pool.Exec(t.Context(), `update settle.tasks set `+row+` where id = $1`, f.TaskID)
			if state(err) != "23514" {
				t.Errorf("%v, want a check violation", err)
			}
		})
	}
	if _, err := b.pool.Exec(t.Context(), `insert into settle.tasks (kind, key, status, token, sending, lease_until, give_up_at, payload,
		payload_hash, hash_algorithm) select kind, key, status, token, sending, lease_until, give_up_at, payload, payload_hash,
		hash_algorithm from settle.tasks`); state(err) != "23505" {
		t.Errorf("a second row for one key: %v", err)
	}
}
