package idemstore_test

import (
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// D-16: text of any origin can never make "save the failure" fail. What a text column cannot hold is replaced.
func TestD16TextThatPostgresRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const dirty, clean = "a\x00b\xffc", "a\ufffdb\ufffdc"
	t.Run("save", func(t *testing.T) {
		s := unknown(b.performing(t, "save"))
		s.LastError, s.ErrorClass, s.Answer, s.Reason, s.Trace = dirty, dirty, dirty, dirty, "00-\x00-\xff-01"
		s.ExternalID, s.EvidenceID, s.Result = dirty, dirty, []byte(dirty)
		b.save(t, s)
		row := b.task(t, s.TaskID)
		for name, got := range map[string]string{"error": row.LastError, "class": row.ErrorClass, "answer": row.Answer,
			"external id": row.ExternalID, "evidence": row.EvidenceID, "result": string(row.Result), "audit": b.reasons(t, s.TaskID)[0]} {
			if got != clean {
				t.Errorf("%s %q, want %q", name, got, clean)
			}
		}
	})
	t.Run("release", func(t *testing.T) {
		f := b.performing(t, "release")
		if _, err := b.Release(t.Context(), idemstore.Release{Fence: f, LastError: dirty, ErrorClass: dirty, Reason: dirty}); err != nil {
			t.Fatal(err)
		}
		if row := b.task(t, f.TaskID); row.LastError != clean || row.ErrorClass != clean || b.reasons(t, f.TaskID)[0] != clean {
			t.Errorf("the row: %+v", row)
		}
	})
	t.Run("arm", func(t *testing.T) {
		a := armOf(b.asking(t, "arm"))
		a.Reason = dirty
		if _, err := b.Arm(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("external id", func(t *testing.T) {
		f := b.performing(t, "external id")
		if err := b.SaveExternalID(t.Context(), f, dirty, "00-\x00-\xff-01"); err != nil {
			t.Fatal(err)
		}
		s := finished(f)
		s.ExternalID = dirty // the same id, spelt the same way
		b.save(t, s)
		if row := b.task(t, f.TaskID); row.ExternalID != clean {
			t.Errorf("external id %q", row.ExternalID)
		}
	})
	t.Run("refusal", func(t *testing.T) {
		r := refusalOf(dirty)
		r.Kind, r.Key, r.Detail, r.Subject = dirty, dirty, dirty, dirty
		if err := b.Refuse(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		got := query[string](t, b.pool, `select concat_ws('|', kind, key, detail, subject, encode(body, 'hex')) from settle.refusals`)
		if want := clean + "|" + clean + "|" + clean + "|" + clean + "|610062ff63"; got != want {
			t.Errorf("refused as %q, want %q", got, want)
		}
	})
}
