package cases

import (
	"context"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/rig"
)

// The stream has the job and its answer to the publisher is lost. The publisher is told that nobody knows, publishes
// again, and whatever that adds to the stream comes to one effect.
func TestD08PublishNotAnswered(t *testing.T) {
	t.Parallel()
	type again struct {
		window time.Duration // of the stream's de-duplication; 0: the standard one
		header map[string][]string
		want   consumer.PublishOutcome
		copies int
	}
	each(t, map[string]again{
		"again at once":          {want: consumer.PublishDuplicate, copies: 1},
		"again after the window": {window: 100 * time.Millisecond, want: consumer.PublishStored, copies: 2},
		"under a fresh id":       {header: map[string][]string{"Nats-Msg-Id": {"fresh"}}, want: consumer.PublishStored, copies: 2},
	}, func(t *testing.T, c again) {
		s := newCalmStage(t)
		s.dedupWindow(c.window)
		j := charge("1")
		api, err := handlers.NewClient(handlers.ClientOptions{URL: s.settings.ProviderURL})
		if err != nil {
			t.Fatal(err)
		}
		kind := chargeOf(api, s.settings)
		broker := s.throughNATS()
		publisher := s.connect()
		shot := broker.DropReply(rig.PublicationCut{Match: func(p rig.Publication) bool { return p.Subject == "jobs."+chargeKind }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, err := consumer.PublishRaw(ctx, publisher, kind, []byte(j.body), nil)
		if err == nil || first.Outcome != consumer.PublishUnknown || first.Sequence != 0 {
			t.Errorf("an answer that never came: %s, sequence %d, %v; want not known", first.Outcome, first.Sequence, err)
		}
		rig.Await(t, shot.Fired(), soon, "the answer is dropped")

		// The window has passed with the wait for the answer.
		second, err := consumer.PublishRaw(t.Context(), publisher, kind, []byte(j.body), c.header)
		if err != nil || second.Outcome != c.want {
			t.Errorf("published again: %s, %v; want %s", second.Outcome, err, c.want)
		}
		if n := rig.StreamMessages(t, s.js, "JOBS"); n != c.copies {
			t.Errorf("%d messages in the stream, want %d", n, c.copies)
		}
		w := s.serve(referenceKinds)
		s.holds(j)
		s.sent(j, 1, 1)
		task, _ := s.find(j)
		if task.Duplicates != c.copies-1 {
			t.Errorf("%d duplicates on the row, want %d", task.Duplicates, c.copies-1)
		}
		w.stop()
		if acks := settled(broker, rig.Publication.IsAck); acks != c.copies {
			t.Errorf("%d acks for %d messages", acks, c.copies)
		}
	})
}

// dedupWindow changes how long the stream remembers message ids.
func (s *stage) dedupWindow(d time.Duration) {
	s.t.Helper()
	if d == 0 {
		return
	}
	stream, err := s.js.Stream(s.t.Context(), "JOBS")
	if err != nil {
		s.t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Duplicates = d
	if _, err := s.js.UpdateStream(s.t.Context(), config); err != nil {
		s.t.Fatal(err)
	}
}
