//go:build !nodemo

package devenv

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A stream with three replicas outlives the node that leads it, and that node comes back to it.
func TestNATSClusterOutlivesANode(t *testing.T) {
	c, err := StartNATSCluster(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := nats.Connect(c.URL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	var s jetstream.Stream
	untilDone(t, func() (err error) {
		s, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}, Replicas: 3})
		return err
	})
	untilDone(t, func() error { _, err := js.Publish(t.Context(), "kept", nil); return err })
	leader := s.CachedInfo().Cluster.Leader
	c.Node(leader).Kill()
	untilDone(t, func() error { _, err := js.Publish(t.Context(), "kept", nil); return err })
	info, err := s.Info(t.Context())
	if err != nil || info.State.Msgs < 2 || info.Cluster.Leader == leader {
		t.Errorf("%+v (%v)", info, err)
	}
	if err := c.Node(leader).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Node("node-4") != nil {
		t.Error("a node that is not there was found")
	}
}

// untilDone repeats what a cluster that is choosing a leader may refuse.
func untilDone(t *testing.T, do func() error) {
	t.Helper()
	deadline := time.Now().Add(startLimit)
	err := do()
	for err != nil && time.Now().Before(deadline) {
		err = do()
	}
	if err != nil {
		t.Fatal(err)
	}
}
