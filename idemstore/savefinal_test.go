package idemstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// The happy path has a save statement of its own. Whatever the row is, it leaves what the general one leaves, which
// serves everything that writes an audit line.
func TestFinalSaveIsASave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rows := map[string]string{
		"first attempt":       ``,
		"asked":               `sending = false, unsure = true, attempts = 2, last_sent_by = clock_timestamp() - interval '1 s'`,
		"id known":            `external_id = 'ch_1', unsure = true`,
		"other id known":      `external_id = 'ch_2', unsure = true`,
		"late proof":          `evidence_id = 'ch_1', unsure = true`,
		"other late proof":    `evidence_id = 'ch_2', unsure = true`,
		"asked, other proof":  `evidence_id = 'ch_2', unsure = true, sending = false`,
		"absent once":         `absent_at = clock_timestamp(), unsure = true`,
		"answered before":     `result = '{}', result_altered = true, provider_status = 500, answer = 'old', last_error = 'old', error_class = 'old', failures = 3`,
		"lease over":          `lease_until = clock_timestamp() - interval '1 s'`,
		"taken over":          `token = gen_random_uuid()`,
		"attempt over":        `attempts = 7`,
		"finished meanwhile":  `status = 'finished', lease_until = null, finished_at = clock_timestamp(), attempts = 2`,
		"parked meanwhile":    `status = 'needs_review', lease_until = null, token = gen_random_uuid()`,
		"released, not saved": `lease_until = null, sending = false, first_sent_at = null`,
	}
	for name, row := range rows {
		for what, outcome := range finalOutcomes() {
			t.Run(name+", "+what, func(t *testing.T) {
				var left [2]string
				for i, reason := range []string{"", "an audit line"} {
					f := b.performing(t, fmt.Sprint(name, what, i))
					if row != "" {
						b.set(t, f.TaskID, row)
					}
					s := outcome
					s.Fence, s.Kind, s.Reason = f, kind, reason
					if name == "asked" {
						s.Attempt = 2
					}
					saved, err := b.Save(t.Context(), s)
					left[i] = b.outcome(t, f.TaskID, saved, err)
				}
				if left[0] != left[1] {
					t.Errorf("the happy path leaves\n%s\nthe general save\n%s", left[0], left[1])
				}
			})
		}
	}
}

func finalOutcomes() map[string]idemstore.Save {
	done := idemstore.Save{Status: idemstore.Finished, MayBeApplied: true, Retention: time.Hour, MaxFailures: 5, Trace: trace}
	withID := done
	withID.ExternalID, withID.Result, withID.ProviderStatus, withID.Answer, withID.ResultAltered = "ch_1", []byte(`{"id":1}`), 201, "new\x00", true
	refused := done
	refused.Status, refused.LastError, refused.ErrorClass, refused.ExternalID = idemstore.Failed, "declined", "refused", "ch_1"
	return map[string]idemstore.Save{"done without an id": done, "done": withID, "refused": refused}
}

// outcome is all that a save did, but for when, and for what tells two tasks apart.
func (b bench) outcome(t *testing.T, id int64, saved []idemstore.Saved, err error) string {
	t.Helper()
	row := query[string](t, b.pool, `select (select jsonb_object_agg(key, case
			when key in ('id', 'key', 'token', 'payload', 'payload_hash', 'provider_key', 'created_at', 'updated_at', 'next_attempt_at', 'give_up_at') then null
			when key like '%\_at' or key in ('lease_until', 'last_sent_by') then to_jsonb(value <> 'null') else value end)
		from jsonb_each(to_jsonb(t)))::text from settle.tasks t where id = $1`, id)
	found := query[int](t, b.pool, `select count(*) from settle.task_refs where task_id = $1`, id)
	var what string
	for _, s := range saved {
		what += fmt.Sprint(s.Status, s.Failures)
	}
	for _, known := range []error{idemstore.ErrLost, idemstore.ErrOtherExternalID} {
		if errors.Is(err, known) {
			err = known
		}
	}
	return fmt.Sprintf("%s (%v), %d refs, %s", what, err, found, row)
}

// Those of one group that go by different statements are answered by position, and fail together.
func TestGroupOfFinalAndOtherSaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.makeRows(t)
	var saves []idemstore.Save
	for i := range 6 {
		f := b.performing(t, fmt.Sprint("order_", i))
		s := finished(f)
		s.ExternalID = fmt.Sprint("ch_", i)
		if i%2 == 1 {
			s = unknown(f)
		}
		b.set(t, f.TaskID, fmt.Sprintf("failures = %d", i))
		s.MaxFailures = 100
		s.Writes = []idemstore.Statement{local(fmt.Sprint(i))}
		saves = append(saves, s)
	}
	saves[0], saves[4] = saves[4], saves[0]
	stale := saves[2]
	saves[2].Token = claimOf("").Token
	if saved, err := b.Save(t.Context(), saves...); !errors.Is(err, idemstore.ErrLost) || b.rows(t) != 0 {
		t.Fatalf("saved %+v (%v), %d local rows beside a stale attempt", saved, err, b.rows(t))
	}
	saves[2] = stale
	saved, err := b.Save(t.Context(), saves...)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range saves {
		row := b.task(t, s.TaskID)
		if saved[i].Status != s.Status || row.Status != s.Status || saved[i].Failures != row.Failures || row.ExternalID != s.ExternalID {
			t.Errorf("position %d: answered %+v, row %+v", i, saved[i], row)
		}
	}
	if b.rows(t) != 6 {
		t.Errorf("%d local rows, want 6", b.rows(t))
	}
}
