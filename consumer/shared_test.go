package consumer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Twenty workers that a deploy starts in one moment ask Postgres at moments of their own from then on, and none less often
// than promised.
func TestWorkersReadWhatTheyShareAtMomentsOfTheirOwn(t *testing.T) {
	t.Parallel()
	const workers, minutes = 20, 30
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
		defer cancel()
		var mu sync.Mutex
		at := map[time.Duration]int{} // readings by the tenth of a second
		var asking sync.WaitGroup
		for range workers {
			asking.Go(func() {
				last, readings := began, 0
				atOwnMoments(ctx, func() {
					now := time.Now()
					if gap := now.Sub(last); readings > 0 && gap > measureEvery+measureSpread || readings > 1 && gap < measureEvery-measureSpread {
						t.Errorf("reading %d comes %s after the one before", readings, gap)
					}
					last = now
					readings++
					mu.Lock()
					at[now.Sub(began).Truncate(100*time.Millisecond)]++
					mu.Unlock()
				})
			})
		}
		asking.Wait()
		if at[0] < workers {
			t.Errorf("%d of %d read when they start", at[0], workers)
		}
		delete(at, 0)
		total := 0
		for moment, n := range at {
			if total += n; n > workers/2 {
				t.Errorf("%d of %d read at %s", n, workers, moment)
			}
		}
		if want := workers * minutes * 6; total < want*9/10 || total > want*11/10 {
			t.Errorf("%d readings in %d minutes, want about %d", total, minutes, want)
		}
	})
}
