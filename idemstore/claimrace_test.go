package idemstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/settlemq/settle/idemstore"
)

// A claim races with the save of the attempt that holds its key: it sees the row before or after that, and no mixture of both.
func TestClaimsRaceWithTheSave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var claims []idemstore.Claim
	for i := range 600 {
		claims = append(claims, claimOf(fmt.Sprintf("order_%04d", i)))
	}
	if _, err := b.Claim(t.Context(), claims...); err != nil {
		t.Fatal(err)
	}
	after := 0
	for round := range 60 {
		// The last key of the group: a claim locks it long after it has taken its snapshot.
		last := claimOf(fmt.Sprintf("order_z%d", round))
		f := b.claim(t, last).Task.Fence
		all := slices.Concat(claims, []idemstore.Claim{last})
		for i := range all {
			all[i].Token = uuid.New()
		}
		saved := async(func() ([]idemstore.Saved, error) { return b.Save(t.Context(), finished(f)) })
		got, err := b.Claim(t.Context(), all...)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if s := <-saved; s.err != nil {
			t.Fatal(s.err)
		}
		c := got[len(got)-1]
		if c.Found == idemstore.Final {
			after++
		}
		if c.Found != idemstore.Busy && c.Found != idemstore.Locked && (c.Found != idemstore.Final || string(c.Task.Result) != `{"id":"ch_1"}`) {
			t.Errorf("round %d: found %s, with the result %q", round, c.Found, c.Task.Result)
		}
	}
	if after == 0 {
		t.Error("no claim came after a save: they did not race")
	}
}
