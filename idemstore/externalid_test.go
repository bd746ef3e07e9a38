package idemstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

func TestSaveExternalID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, row := range map[string]string{
		"lease live": ``,
		"lease over, nobody claimed: the id is worth more than the lease": `lease_until = clock_timestamp() - interval '1 s'`,
		"same id already": `external_id = 'ch_1', unsure = true`,
	} {
		t.Run(name, func(t *testing.T) {
			f := b.performing(t, name)
			if row != "" {
				b.set(t, f.TaskID, row)
			}
			for range 2 {
				if err := b.SaveExternalID(t.Context(), f, "ch_1", trace); err != nil {
					t.Fatal(err)
				}
			}
			got := b.task(t, f.TaskID)
			if got.ExternalID != "ch_1" || !got.Unsure || got.EvidenceID != "" || got.Status != idemstore.Started || got.Fence != f {
				t.Errorf("the row: %+v", got)
			}
			if n := query[int](t, b.pool, `select count(*) from settle.task_refs where name = 'external_id' and task_id = $1`, f.TaskID); n != 1 {
				t.Errorf("%d search terms", n)
			}
			if len(b.reasons(t, f.TaskID)) != 0 {
				t.Error("the happy path wrote an audit line")
			}
		})
	}
}

// D-38: proof that comes late changes no status that is another's, but whoever sends next must look at it.
func TestD38LateProof(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		name   string
		row    string // what became of the task of the attempt that lost it
		fence  func(*idemstore.Fence)
		want   error
		status idemstore.Status
		unsure bool
	}{
		{name: "another attempt holds it", row: `attempts = 2, token = gen_random_uuid()`, want: idemstore.ErrLost, status: idemstore.Started, unsure: true},
		{name: "another attempt released it", row: `attempts = 2, token = gen_random_uuid(), lease_until = null, sending = false, first_sent_at = null`,
			want: idemstore.ErrLost, status: idemstore.Unknown, unsure: true},
		{name: "this attempt released it itself", row: `lease_until = null, sending = false, first_sent_at = null`,
			want: idemstore.ErrLost, status: idemstore.Unknown, unsure: true},
		{name: "unknown", row: `attempts = 2, status = 'unknown', unsure = true, lease_until = null`, want: idemstore.ErrLost, status: idemstore.Unknown, unsure: true},
		{name: "parked", row: `attempts = 2, status = 'needs_review', lease_until = null`, want: idemstore.ErrLost, status: idemstore.NeedsReview, unsure: true},
		{name: "finished with another id", row: `attempts = 2, status = 'finished', finished_at = clock_timestamp(), lease_until = null, external_id = 'ch_0'`,
			want: idemstore.ErrLost, status: idemstore.Finished},
		{name: "failed", row: `attempts = 2, status = 'failed', finished_at = clock_timestamp(), lease_until = null`, want: idemstore.ErrLost, status: idemstore.Failed},
		{name: "a second id of the attempt that holds it", row: `external_id = 'ch_0', unsure = true`, want: idemstore.ErrOtherExternalID, status: idemstore.Started, unsure: true},
		{name: "number wrong", fence: func(f *idemstore.Fence) { f.Attempt++ }, want: idemstore.ErrLost, status: idemstore.Started, unsure: true},
		{name: "token wrong", fence: func(f *idemstore.Fence) { f.Token = uuid.New() }, want: idemstore.ErrLost, status: idemstore.Started, unsure: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.performing(t, c.name)
			if c.row != "" {
				b.set(t, f.TaskID, c.row)
			}
			if c.fence != nil {
				c.fence(&f)
			}
			before := b.task(t, f.TaskID)
			for range 2 {
				if err := b.SaveExternalID(t.Context(), f, "ch_1", trace); !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
			}
			row := b.task(t, f.TaskID)
			switch {
			case row.EvidenceID != "ch_1":
				t.Errorf("evidence %q", row.EvidenceID)
			case row.Status != c.status, row.Unsure != c.unsure:
				t.Errorf("status %s, unsure %v", row.Status, row.Unsure)
			case row.Fence != before.Fence, row.ExternalID != before.ExternalID, row.Failures != before.Failures, row.Sending != before.Sending:
				t.Errorf("the row changed from\n%+v to\n%+v", before, row)
			}
			events, err := b.Events(t.Context(), f.TaskID)
			if err != nil || len(events) != 1 {
				t.Fatalf("audit %+v (%v), want one line", events, err)
			}
			if e := events[0]; e.ExternalID != "ch_1" || e.OldStatus != before.Status || e.NewStatus != c.status || e.TraceID == "" {
				t.Errorf("audit %+v", e)
			}
		})
	}
}

// The same id once more is no proof of anything new.
func TestLateProofOfTheStoredID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := finished(b.performing(t, "order_1"))
	b.save(t, s)
	before := b.row(t, s.TaskID)
	if err := b.SaveExternalID(t.Context(), s.Fence, "ch_1", trace); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if b.row(t, s.TaskID) != before || len(b.reasons(t, s.TaskID)) != 0 {
		t.Error("something was written")
	}
}

// The first proof stays on the row; each further id is in the audit.
func TestSeveralLateProofs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	b.expire(t, f.TaskID)
	b.expect(t, idemstore.Ask, claimOf("order_1"))
	for _, id := range []string{"ch_1", "ch_2"} {
		if err := b.SaveExternalID(t.Context(), f, id, trace); !errors.Is(err, idemstore.ErrLost) {
			t.Fatal(err)
		}
	}
	events, err := b.Events(t.Context(), f.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range events[1:] {
		ids = append(ids, e.ExternalID)
	}
	if row := b.task(t, f.TaskID); row.EvidenceID != "ch_1" || !slices.Equal(ids, []string{"ch_1", "ch_2"}) {
		t.Errorf("evidence %q, audit %q", row.EvidenceID, ids)
	}
}

// The attempt that holds the task was about to send again when the proof came.
func TestLateProofStopsAResend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.performing(t, "order_1")
	b.expire(t, first.TaskID)
	second := b.expect(t, idemstore.Ask, claimOf("order_1")).Task.Fence
	if err := b.SaveExternalID(t.Context(), first, "ch_1", trace); !errors.Is(err, idemstore.ErrLost) {
		t.Fatal(err)
	}
	a := armOf(second)
	a.Permitted = true
	if armed, err := b.Arm(t.Context(), a); !errors.Is(err, idemstore.ErrLost) {
		t.Errorf("armed %+v (%v)", armed, err)
	}
}

func TestSaveExternalIDOfNoTask(t *testing.T) {
	t.Parallel()
	err := newBench(t).SaveExternalID(t.Context(), idemstore.Fence{TaskID: 1, Attempt: 1, Token: uuid.New()}, "ch_1", trace)
	if !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

// Late proof that came in while an attempt was sending: an answer that does not name the same effect settles nothing. An
// attempt that only asked has asked about the proof.
func TestProofWhileSending(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, c := range map[string]struct {
		asking bool
		status idemstore.Status
		id     string
		saved  bool
	}{
		"sent, done as proven":       {status: idemstore.Finished, id: "ch_late", saved: true},
		"sent, done, and no id":      {status: idemstore.Finished},
		"sent, done otherwise":       {status: idemstore.Finished, id: "ch_2"},
		"sent, refused as proven":    {status: idemstore.Failed, id: "ch_late", saved: true},
		"sent, refused, and no id":   {status: idemstore.Failed},
		"sent, refused otherwise":    {status: idemstore.Failed, id: "ch_2"},
		"sent, unknown":              {status: idemstore.Unknown, saved: true},
		"asked, refused, and no id":  {asking: true, status: idemstore.Failed, saved: true},
		"asked, refused otherwise":   {asking: true, status: idemstore.Failed, id: "ch_2"},
		"asked, finished, and no id": {asking: true, status: idemstore.Finished, saved: true},
	} {
		for _, strict := range []bool{false, true} { // each has a statement of its own
			t.Run(fmt.Sprintf("%s, strict %v", name, strict), func(t *testing.T) {
				lost := b.performing(t, t.Name())
				b.expire(t, lost.TaskID)
				current := b.expect(t, idemstore.Ask, claimOf(t.Name())).Task.Fence
				if !c.asking {
					if _, err := b.Arm(t.Context(), armOf(current)); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.SaveExternalID(t.Context(), lost, "ch_late", trace); !errors.Is(err, idemstore.ErrLost) {
					t.Fatal(err)
				}
				_, err := b.Save(t.Context(), idemstore.Save{Fence: current, Kind: kind, Key: t.Name(), Strict: strict, Status: c.status,
					ExternalID: c.id, MayBeApplied: true, MaxFailures: 5, Trace: trace})
				if !c.saved && !errors.Is(err, idemstore.ErrOtherExternalID) || c.saved && err != nil {
					t.Errorf("saved: %v", err)
				}
			})
		}
	}
}

// Late proof of one effect and an answer about another: neither is finished, and both ids are on the row.
func TestProofAgainstTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lost := b.performing(t, "order_1")
	b.expire(t, lost.TaskID)
	current := b.expect(t, idemstore.Ask, claimOf("order_1")).Task.Fence
	if err := b.SaveExternalID(t.Context(), lost, "ch_late", trace); !errors.Is(err, idemstore.ErrLost) {
		t.Fatal(err)
	}
	if saved, err := b.Save(t.Context(), finished(current)); !errors.Is(err, idemstore.ErrOtherExternalID) {
		t.Fatalf("saved %+v (%v), want ErrOtherExternalID", saved, err)
	}
	b.save(t, idemstore.Save{Fence: current, Kind: kind, Status: idemstore.NeedsReview, MayBeApplied: true, EvidenceID: "ch_1",
		MaxFailures: 5, Reason: "two effects?", Trace: trace})
	row := b.task(t, lost.TaskID)
	if row.Status != idemstore.NeedsReview || row.ExternalID != "ch_1" || row.EvidenceID != "ch_late" || !row.Unsure {
		t.Errorf("status %s, external id %q, evidence %q, unsure %v", row.Status, row.ExternalID, row.EvidenceID, row.Unsure)
	}
}
