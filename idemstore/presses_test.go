package idemstore_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// However many send a form, one of them does it, and the first word about what came of it stays.
func TestAPressIsOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := idemstore.Pressed{ID: uuid.New(), Actor: "ann", Act: "retry", Place: "/tasks/1", Reason: "the customer\x00 called", Digest: []byte("d")}
	if _, err := b.FindPress(t.Context(), p.ID); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	const presses = 8
	ready, mine := make(chan struct{}), make(chan bool, presses)
	var pressing sync.WaitGroup
	for range presses {
		pressing.Go(func() {
			<-ready
			kept, first, err := b.BeginPress(t.Context(), p)
			if err != nil || kept.Actor != "ann" || kept.Reason != "the customer\uFFFD called" || kept.Outcome != "" || kept.At.IsZero() {
				t.Errorf("%+v, %v", kept, err)
			}
			mine <- first
		})
	}
	close(ready)
	pressing.Wait()
	close(mine)
	firsts := 0
	for first := range mine {
		if first {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d do it", firsts)
	}
	for _, word := range []string{"done", "refused"} {
		kept, err := b.EndPress(t.Context(), p.ID, word, word+"\x00")
		if err != nil || kept.Outcome != "done" || kept.Message != "done\uFFFD" || kept.EndedAt == nil {
			t.Errorf("%s: %+v, %v", word, kept, err)
		}
	}
	if kept, err := b.FindPress(t.Context(), p.ID); err != nil || kept.Outcome != "done" || string(kept.Digest) != "d" {
		t.Errorf("%+v, %v", kept, err)
	}
}
