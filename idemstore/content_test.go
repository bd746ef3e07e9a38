package idemstore_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// D-01, A6: a repeat gets the stored result, and changes nothing but the count.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, status := range []idemstore.Status{idemstore.Finished, idemstore.Failed} {
		key := string(status)
		s := finished(b.performing(t, key))
		s.Status = status
		b.save(t, s)
		before := b.task(t, s.TaskID)
		for range 2 {
			c := claimOf(key)
			c.Origin.Sequence = 99 // another message with the same content
			got := b.expect(t, idemstore.Final, c)
			if string(got.Task.Result) != `{"id":"ch_1"}` || got.Task.ExternalID != "ch_1" || got.Task.Status != status || got.Task.Payload != nil {
				t.Errorf("replayed %+v", got.Task)
			}
		}
		after := b.task(t, s.TaskID)
		if after.Duplicates != 2 {
			t.Errorf("%d duplicates, want 2", after.Duplicates)
		}
		after.Duplicates = 0
		if fmt.Sprintf("%+v", dropPointers(after)) != fmt.Sprintf("%+v", dropPointers(before)) {
			t.Errorf("a replay changed the row from\n%+v to\n%+v", before, after)
		}
		if n := query[int](t, b.pool, `select count(*) from settle.tasks where id = $1 and last_duplicate_at > finished_at`, s.TaskID); n != 1 {
			t.Error("the time of the last duplicate is not on the row")
		}
	}
}

// dropPointers makes two reads of one row print alike.
func dropPointers(t idemstore.Task) idemstore.Task {
	t.LeaseUntil, t.FirstSentAt, t.LastSentBy, t.AbsentAt, t.FinishedAt = nil, nil, nil, nil, nil
	return t
}

// D-14: the same key with other content leaves the row alone, whatever its state.
func TestConflictLeavesTheRowAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, state := range []idemstore.Found{idemstore.Busy, idemstore.Ask, idemstore.Final, idemstore.Parked, idemstore.NotDue, idemstore.Perform} {
		t.Run(string(state), func(t *testing.T) {
			id := prepareFor(t, b, state)
			before := b.row(t, id)
			c := claimOf("order_" + string(state))
			c.Payload, c.Hash, c.Origin.Sequence = []byte(`{"order":"other"}`), []byte("other"), 8
			got := b.expect(t, idemstore.Conflicting, c)
			if got.Task.TaskID != id || got.Task.Payload != nil {
				t.Errorf("answered with task %d and payload %q", got.Task.TaskID, got.Task.Payload)
			}
			if b.row(t, id) != before {
				t.Errorf("the row changed")
			}
		})
	}
}

// What counts as the same content, by hash, by bytes, or because it is the very message.
func TestSameContent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := prepareFor(t, b, idemstore.Final)
	for _, c := range []struct {
		name   string
		change func(*idemstore.Claim)
		want   idemstore.Found
	}{
		{"other bytes of the same meaning", func(c *idemstore.Claim) { c.Payload, c.Origin.Sequence = []byte(`{ }`), 8 }, idemstore.Final},
		{"own message under a new algorithm", func(c *idemstore.Claim) { c.HashAlgorithm, c.Hash = "v2", []byte("new") }, idemstore.Final},
		{"own bytes in another message under a new algorithm", func(c *idemstore.Claim) {
			c.HashAlgorithm, c.Hash, c.Origin.Sequence = "v2", []byte("new"), 8
		}, idemstore.Final},
		{"other bytes under a new algorithm", func(c *idemstore.Claim) {
			c.HashAlgorithm, c.Hash, c.Payload = "v2", []byte("new"), []byte(`{ }`)
		}, idemstore.Incomparable},
		{"own message, whose hash this build counts otherwise", func(c *idemstore.Claim) { c.Hash = []byte("new") }, idemstore.Final},
		{"same sequence of a stream made anew", func(c *idemstore.Claim) {
			c.Hash, c.Payload, c.Origin.Stored = []byte("new"), []byte(`{ }`), time.Unix(1_800_000_000, 0)
		}, idemstore.Conflicting},
		{"same sequence of another stream", func(c *idemstore.Claim) {
			c.Hash, c.Payload, c.Origin.Stream = []byte("new"), []byte(`{ }`), "OTHER"
		}, idemstore.Conflicting},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := claimOf("order_final")
			c.change(&claim)
			b.expect(t, c.want, claim)
		})
	}
	if row := b.task(t, id); row.Attempt != 1 || row.HashAlgorithm != "v1" {
		t.Errorf("the row: %+v", row)
	}
}

// Claims that come from no message are not all the same message.
func TestClaimsWithoutMessageAreComparedByContent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := claimOf("order_1")
	c.Origin = idemstore.Origin{}
	b.expect(t, idemstore.Inserted, c)
	c.Token, c.Payload, c.Hash = uuid.New(), []byte(`{"order":"other"}`), []byte("other")
	b.expect(t, idemstore.Conflicting, c)
}

// K-same: every attempt works on the bytes of the row, under the key of the first send.
func TestAttemptGetsThePayloadOfTheRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, want := range []idemstore.Found{idemstore.Ask, idemstore.Perform} {
		prepareFor(t, b, want)
		stored := claimOf("order_" + string(want))
		c := stored
		c.Token = uuid.New()
		c.Payload, c.ProviderKey = []byte(`{ "order" : "same meaning" }`), "pay_new_rule"
		got := b.expect(t, want, c)
		if !bytes.Equal(got.Task.Payload, stored.Payload) {
			t.Errorf("%s: payload %q, want the row's", want, got.Task.Payload)
		}
		// Only a task that was certainly never sent takes the key of a new rule.
		if key := got.Task.ProviderKey; (key == "pay_new_rule") != (want == idemstore.Perform) {
			t.Errorf("%s: provider key %q", want, key)
		}
	}
}
