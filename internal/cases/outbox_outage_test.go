package cases

import (
	"slices"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// While the broker is away a result is saved all the same, with what follows it. When it is back the event goes out, the
// receipt is sent, and the message, whose ack could not be sent, is acked.
func TestChainOutlivesABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	s := newChain(t, 0)
	s.settings.Config.Lease = 20 * time.Second
	broker := s.throughNATS()
	w := s.startChain()
	there, release := s.hold(provider.AfterCommit)
	s.publish(charge("1"))
	rig.Await(t, there, soon, "the charge is under way")
	broker.Refuse(true)
	broker.Cut()
	release()
	task := s.awaitStatus(charge("1"), idemstore.Finished)
	if left := s.waiting(); !slices.Equal(left, both) {
		t.Errorf("the outbox holds %q, want %q", left, both)
	}
	rig.Eventually(t, soon, "the event was tried", func() bool {
		state, err := s.store.OutboxState(t.Context())
		return err == nil && state.Rows == 2 && state.Failed == 1
	})
	broker.Refuse(false)
	s.chained(1, "1")
	s.inOrder("1")
	drained(t, w)
	if now, _ := s.find(charge("1")); now.Attempt != task.Attempt || now.Attempt != 1 {
		t.Errorf("%d attempts", now.Attempt)
	}
}
