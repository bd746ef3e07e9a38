package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// The client gives up before the provider performs the effect, and the worker is replaced before the retry. The key
// is the same bytes in every attempt and process, so the provider makes one effect of both requests.
func TestD28TimeoutThenAnotherProcess(t *testing.T) {
	t.Parallel()
	each(t, map[string]job{
		"plain key":   charge("18452"),
		"derived key": {chargeKind, "order_Größe/ 7", `{"order_id":"Größe/ 7","customer_id":"c_1","amount":1200,"currency":"EUR"}`},
	}, func(t *testing.T, j job) {
		s := newCalmStage(t)
		rec := s.throughRecorder()
		s.settings.Timeout = time.Second
		// The first request takes effect after 2 s. Look-ups do not find it for a while, so that the key is put to use.
		s.faults(provider.Fault{DelayBefore: 2 * time.Second, Hide: time.Minute, Count: 1}, provider.Fault{Hide: time.Minute})
		saved := rig.Point{Span: "settle.save", Edge: rig.End, Action: rig.Kill}
		first := s.startWorker(saved)
		s.publish(j)
		first.AwaitPoint(saved, soon)
		if e := first.Wait(soon); !e.Killed() {
			t.Fatalf("the first worker ended with %s", e)
		}
		task, _ := s.find(j)
		if task.Status != idemstore.Unknown || task.ErrorClass != "timeout" || task.FirstSentAt == nil || task.LastSentBy == nil {
			t.Errorf("after the timeout: %s (%s), sent %v to %v; want unknown with the time of sending",
				task.Status, task.ErrorClass, task.FirstSentAt, task.LastSentBy)
		}

		second := s.startWorker()
		task = s.awaitStatus(j, idemstore.Finished)
		s.awaitSettled()
		drained(t, second)
		posts := rec.posts(task.ProviderKey)
		if len(posts) != 2 || task.Attempt != 2 || rec.strays() != 0 {
			t.Fatalf("%d requests with key %q, %d without, in %d attempts; want two in two",
				len(posts), task.ProviderKey, rec.strays(), task.Attempt)
		}
		if posts[0].body != posts[1].body {
			t.Errorf("bodies %q and %q", posts[0].body, posts[1].body)
		}
		rig.Eventually(t, soon, "the first request is over at the provider", func() bool {
			return len(query[int](s, `select 1 from provider.requests where method = 'POST' and status is not null`)) == 2
		})
		ids := query[string](s, `select charge_id from provider.charges`)
		if fmt.Sprint(ids) != fmt.Sprint([]string{task.ExternalID}) {
			t.Errorf("effects %q, the row has %q", ids, task.ExternalID)
		}
		s.firstUnknown(task)
	})
}
