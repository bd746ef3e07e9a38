package admin

import (
	"testing"
	"time"
)

// Whatever is known of a task or a refusal stands behind a label.
func TestEachFactHasItsLabel(t *testing.T) {
	t.Parallel()
	now := time.Now()
	whole := task{
		row:         row{Task: 1, Kind: "k", Key: "k", Attempts: 1, ExternalID: "x", CreatedAt: now, NextAttemptAt: &now, GiveUpAt: &now, FinishedAt: &now, ArchivedAt: &now},
		LastAttempt: now, ProviderKey: "k", Provider: "p", EvidenceID: "y", EventID: "e", EventSource: "s", Stream: "JOBS", Sequence: 1,
		TraceID: "t", Progress: &progress{},
	}
	refused := refusal{ID: 1, At: now, Kind: "k", Key: "k", Reason: "r", Detail: "d", Subject: "s", Stream: "JOBS", Sequence: 1, Task: 1, Republished: &now, By: "b", Why: "w"}
	for what, facts := range map[string][]fact{"task": whole.Facts(), "refusal": refused.Facts()} {
		if want := map[string]int{"task": 20, "refusal": 12}[what]; len(facts) != want {
			t.Errorf("%s: %d facts, want %d", what, len(facts), want)
		}
		for i, f := range facts {
			if f.Name == "" {
				t.Errorf("%s: fact %d, %q, has no label", what, i, f.Value)
			}
		}
	}
}
