package cases

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/rig"
)

// givesUp makes the consumer of charges, as somebody may have before: one that gives up after so many deliveries.
func (s *stage) givesUp(maxDeliver int) jetstream.Consumer {
	s.t.Helper()
	c, err := s.js.CreateConsumer(s.t.Context(), "JOBS", jetstream.ConsumerConfig{Durable: consumerOf(chargeKind), FilterSubject: "jobs." + chargeKind,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.settings.Config.AckWait, MaxDeliver: maxDeliver})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Each delivery kills its worker until the broker gives the message up. Nothing is pending then, and yet nothing is done:
// the next worker finds the message in the stream, says so, and does the job.
func TestD05DeliveriesUsedUpByCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		span string
		edge rig.Edge
	}{
		"before the claim": {"settle.claim", rig.Start}, // only the stream has the job
		"with the effect":  {"HTTP POST", rig.End},      // the provider has it, the row says that nobody knows
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), charge("1")
			cons := s.givesUp(1)
			s.publish(j)
			w := s.startWorker(rig.Point{Span: c.span, Edge: c.edge, Action: rig.Kill})
			w.Wait(soon)
			rig.Eventually(t, soon, "the broker gives the message up", func() bool {
				info, err := cons.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return info.NumPending == 0 && info.NumAckPending == 0
			})
			rig.Eventually(t, soon, "nobody holds the task", func() bool {
				return len(query[int](s, `select 1 from settle.tasks where lease_until > clock_timestamp()`)) == 0
			})
			if n := rig.StreamMessages(t, s.js, "JOBS"); n != 1 {
				t.Fatalf("%d messages are in the stream", n)
			}
			next := s.startWorker()
			s.holds(j)
			if posts, _ := s.requests(j); posts != 1 {
				t.Errorf("W=%d", posts)
			}
			if !strings.Contains(next.Output(), "gave messages up") {
				t.Error("nothing was said about it")
			}
			drained(t, next)
		})
	}
}
