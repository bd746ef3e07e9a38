package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// The connection dies while COMMIT is in flight. The error alone proves nothing: the row is read again by its
// fence, and then says what happened.
func TestD18CommitNotAnswered(t *testing.T) {
	t.Parallel()
	const save, claim = "/* settle:save", "/* settle:claim-insert */"
	type c struct {
		containing string
		cut        func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot
		deliveries int
	}
	each(t, map[string]c{
		"result stored, answer lost":      {save, (*rig.PostgresProxy).DropCommitAnswer, 1},
		"result not stored":               {save, (*rig.PostgresProxy).CutBeforeCommit, 1},
		"claim committed, answer lost":    {claim, (*rig.PostgresProxy).DropCommitAnswer, 1},
		"claim not committed, so nothing": {claim, (*rig.PostgresProxy).CutBeforeCommit, 2},
	}, func(t *testing.T, c c) {
		s := newStage(t)
		s.settings.Config.Lease = 5 * time.Second
		database, broker := s.throughPostgres(), s.throughNATS()
		shot := c.cut(database, rig.CommitCut{Containing: c.containing})
		w := s.serve(referenceKinds)
		j := charge("1")
		s.publish(j)
		rig.Await(t, shot.Fired(), soon, "the connection is cut at COMMIT")
		s.awaitStatus(j, idemstore.Finished)
		s.holds(j)
		s.sent(j, 1, 1)
		if acks, naks := settled(broker, rig.Publication.IsAck), settled(broker, rig.Publication.IsNak); acks != 1 || naks != 0 {
			t.Errorf("%d acks and %d naks, want one ack", acks, naks)
		}
		if n := deliveries(w); n != c.deliveries {
			t.Errorf("%d deliveries, want %d", n, c.deliveries)
		}
		for _, conn := range w.pool.AcquireAllIdle(t.Context()) {
			if err := conn.Ping(t.Context()); err != nil {
				t.Errorf("a broken connection is back in the pool: %v", err)
			}
			conn.Release()
		}
	})
}

// deliveries counts the deliveries that a worker in this process has begun and ended.
func deliveries(w *inProcess) (n int) {
	w.stop()
	for _, span := range w.spans.Ended() {
		if span.Name() == "settle.deliver" {
			n++
		}
	}
	return n
}
