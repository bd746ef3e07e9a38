package cases

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// Three nodes, three replicas of everything. The node that leads the stream dies under load, and later the one that leads
// the consumer, each without a word; the jobs go on without it, and it comes back. No job is lost, none is done twice.
func TestLeaderDiesUnderLoad(t *testing.T) {
	t.Parallel()
	const some = 50
	cluster, js := startCluster(t, 3)
	s := newStageAt(t, cluster.URL(), js, 3)
	s.settings.Config.Lease, s.settings.Config.AckWait = 20*time.Second, 5*time.Second
	s.settings.Config.Policy.Deadline, s.settings.Quiet = 20*time.Second, true
	s.faults(provider.Fault{DelayBefore: 100 * time.Millisecond})
	workers := []*rig.Worker{s.startWorker(), s.startWorker()}
	end := s.publishSteadily()
	for _, role := range []string{"stream", "consumer"} {
		s.awaitEffects(s.allEffects() + some)
		leader := s.leader(role)
		cluster.Node(leader).Kill()
		t.Logf("%s, the leader of the %s, is dead with %d jobs done", leader, role, s.allEffects())
		s.awaitEffects(s.allEffects() + some) // with no more than what two nodes can bring
		if err := cluster.Node(leader).Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, soon, "every replica is current", func() bool { return s.replicated(2) })
	}
	many := end()
	s.awaitEffects(many)
	s.allOnce(many)
	for _, w := range workers {
		ended(t, w)
	}
}

// startCluster starts nodes that live until the end of the test.
func startCluster(t *testing.T, nodes int) (*devenv.NATSCluster, jetstream.JetStream) {
	t.Helper()
	c, err := devenv.StartNATSCluster(t.Context(), nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	js := connectTo(t, c.URL())
	rig.Eventually(t, soon, "the cluster makes streams", func() bool {
		return consumer.EnsureStreams(t.Context(), js, consumer.Config{Replicas: nodes}) == nil
	})
	return c, js
}

// publishSteadily adds charges to the stream, fifty a second at most, each until it is confirmed, for as long as the test
// needs work to go on beside what it does. end stops that, and says how many there are.
func (s *stage) publishSteadily() (end func() (many int)) {
	s.t.Helper()
	enough, ended := make(chan struct{}), make(chan error, 1)
	many := 0
	go func() {
		steady := time.NewTicker(20 * time.Millisecond)
		defer steady.Stop()
		for {
			select {
			case <-steady.C:
			case <-enough:
				ended <- nil
				return
			}
			j := charge(fmt.Sprint(many))
			m := &nats.Msg{Subject: "jobs." + j.kind, Data: []byte(j.body), Header: nats.Header{"Nats-Msg-Id": {j.key}}}
			if err := s.publishUntilConfirmed(m); err != nil {
				ended <- fmt.Errorf("publish %s: %w", j.key, err)
				return
			}
			many++
		}
	}()
	return func() int {
		s.t.Helper()
		close(enough)
		if err := rig.Await(s.t, ended, 2*soon, "the last job is published"); err != nil {
			s.t.Fatal(err)
		}
		return many
	}
}

func (s *stage) publishUntilConfirmed(m *nats.Msg) (err error) {
	for began := time.Now(); time.Since(began) < soon; {
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
		_, err = s.js.PublishMsg(ctx, m)
		cancel()
		if err == nil || s.t.Context().Err() != nil {
			return err
		}
	}
	return err
}

// awaitEffects waits until the provider has done so much.
func (s *stage) awaitEffects(want int) {
	s.t.Helper()
	rig.Eventually(s.t, 2*soon, fmt.Sprint(want, " effects"), func() bool { return s.allEffects() >= want })
}

// leader is the node that leads the stream of jobs, or the consumer of charges.
func (s *stage) leader(of string) (name string) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "the "+of+" has a leader", func() bool {
		info := s.clusterOf(of)
		if info != nil {
			name = info.Leader
		}
		return name != ""
	})
	return name
}

// replicated reports whether stream and consumer have so many replicas beside their leaders, all of them current.
func (s *stage) replicated(others int) bool {
	for _, of := range []string{"stream", "consumer"} {
		info := s.clusterOf(of)
		if info == nil || len(info.Replicas) != others {
			return false
		}
		for _, r := range info.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
	}
	return true
}

// clusterOf is nil while nobody answers.
func (s *stage) clusterOf(what string) *jetstream.ClusterInfo {
	if what == "stream" {
		if stream, err := s.js.Stream(s.t.Context(), "JOBS"); err == nil {
			return stream.CachedInfo().Cluster
		}
		return nil
	}
	if c, err := s.js.Consumer(s.t.Context(), "JOBS", consumerOf(chargeKind)); err == nil {
		return c.CachedInfo().Cluster
	}
	return nil
}

// allOnce is holds for so many charges, and nothing but them, looked at all together.
func (s *stage) allOnce(many int) {
	s.t.Helper()
	s.awaitSettled()
	if standing := rig.ConsumerStanding(s.t, s.js, "JOBS", consumerOf(chargeKind)); standing != (rig.Standing{}) {
		s.t.Errorf("the consumer: %+v", standing)
	}
	s.noneOpen()
	var tasks, keys, effects, posts, attempts, booked int
	s.scan(`select (select count(*) from settle.tasks t join provider.charges c on c.charge_id = t.external_id and c.idempotency_key = t.key),
		(select count(distinct idempotency_key) from provider.charges), (select count(*) from provider.charges where status = 'succeeded'),
		(select count(*) from provider.requests where method = 'POST'), (select sum(attempts) from settle.tasks),
		(select count(*) from shop.payments p join shop.orders o using (charge_id) where o.status = 'paid')`,
		nil, &tasks, &keys, &effects, &posts, &attempts, &booked)
	if tasks != many || keys != many || effects != many || booked != many || posts > attempts {
		s.t.Errorf("of %d jobs: %d finished with the provider's id, %d keys, E=%d, %d booked; W=%d in %d attempts",
			many, tasks, keys, effects, booked, posts, attempts)
	}
}
