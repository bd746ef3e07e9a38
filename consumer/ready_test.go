package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// unready waits until an engine says that it does not serve, and why.
func unready(t *testing.T, ready func() error, why string) {
	t.Helper()
	var err error
	if !eventually(t, 30*time.Second, func() bool { err = ready(); return err != nil && strings.Contains(err.Error(), why) }) {
		t.Fatalf("does not say %q, but: %v", why, err)
	}
}

func ready(t *testing.T, ready func() error) {
	t.Helper()
	var err error
	if !eventually(t, 30*time.Second, func() bool { err = ready(); return err == nil }) {
		t.Fatalf("not ready: %v", err)
	}
}

func TestAWorkerWithoutItsConsumerIsNotReady(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, _ := b.serve(b.kind)
	ready(t, e.Ready)
	name := consumerName(b.kind.Name)
	b.replaceConsumer(name)
	unready(t, e.Ready, "not bound")
	if err := b.stream().DeleteConsumer(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	ready(t, e.Ready)
	b.publish(`{"order": 1}`)
	b.awaitSettled()
}

// replaceConsumer puts a consumer in the place of a worker's that it must not use. The worker may be quicker to make its own.
func (b *bench) replaceConsumer(name string) {
	b.t.Helper()
	if !eventually(b.t, 20*time.Second, func() bool {
		_ = b.stream().DeleteConsumer(b.t.Context(), name)
		_, err := b.js.CreateConsumer(b.t.Context(), jobStream, jetstream.ConsumerConfig{Durable: name, FilterSubject: subject(b.kind.Name),
			AckPolicy: jetstream.AckExplicitPolicy, BackOff: []time.Duration{time.Second}, MaxDeliver: 5})
		return err == nil
	}) {
		b.t.Fatal("the consumer cannot be replaced")
	}
}

func TestAWorkerWithoutItsDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	e, _ := b.serve(b.kind)
	ready(t, e.Ready)
	there := map[string]float64{"settle_tasks{kind=test.pay,status=unknown}": 0, "settle_ready": 1}
	m.await(there)
	back := b.shutOut()
	unready(t, e.Ready, "")
	if m.series()["settle_ready"] != 0 {
		t.Error("settle_ready does not say so")
	}
	back()
	ready(t, e.Ready)
	m.await(there)
}

// shutOut ends all connections to the bench's database and lets no new ones in, until back.
func (b *bench) shutOut() (back func()) {
	b.t.Helper()
	config := b.pool.Config().ConnConfig.Copy()
	database := config.Database
	config.Database = "postgres"
	admin, err := pgx.ConnectConfig(b.t.Context(), config)
	if err != nil {
		b.t.Fatal(err)
	}
	run := func(sql string) {
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			b.t.Error(err)
		}
	}
	name := pgx.Identifier{database}.Sanitize()
	b.t.Cleanup(func() { _ = admin.Close(context.Background()) })
	run(`alter database ` + name + ` with allow_connections false`)
	run(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '` + database + `'`)
	return func() { run(`alter database ` + name + ` with allow_connections true`) }
}

// Gauges that cannot be read are left out: a number of before would pass for one of now.
func TestGaugesOfADatabaseThatIsAwayAreLeftOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	e := b.engine(b.kind)
	const tasks, stream = "settle_tasks{kind=test.pay,status=started}", "settle_backlog{kind=test.pay,part=undelivered}"
	looks := func() map[string]float64 { // one look, by an engine that does not run
		defer e.observe()()
		table := readGauges(t.Context(), e.shared, "table", e.store.Census)
		e.shared.table.Store(table)
		e.shared.stream.Store(readGauges(t.Context(), e.shared, "stream", e.shared.streamCensus))
		return m.series()
	}
	if err := e.bindAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := looks(); !holds(s, tasks) || !holds(s, stream) {
		t.Fatalf("not there: %v", s)
	}
	back := b.shutOut()
	if s := looks(); holds(s, tasks) || !holds(s, stream) {
		t.Errorf("with the database away there are %v", s)
	}
	back()
	if err := b.js.DeleteStream(t.Context(), jobStream); err != nil {
		t.Fatal(err)
	}
	if s := looks(); !holds(s, tasks) || holds(s, stream) {
		t.Errorf("with the stream gone there are %v", s)
	}
}

func holds(series map[string]float64, name string) bool { _, ok := series[name]; return ok }

func TestAWorkerThatCannotRenewIsNotReady(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	release, entered := make(chan struct{}), make(chan struct{})
	b.kind.Policy.Deadline = time.Minute
	b.kind.Perform = func(context.Context, *Attempt[payJob]) (paid, error) {
		close(entered)
		<-release
		return paid{}, NotSent(context.Canceled)
	}
	e, _ := b.serve(b.kind)
	defer close(release)
	b.publish(`{"order": 1}`)
	<-entered
	ready(t, e.Ready)
	if _, err := b.pool.Exec(t.Context(), `alter table settle.tasks rename column token to hidden`); err != nil {
		t.Fatal(err)
	}
	unready(t, e.Ready, "leases are not renewed")
	if _, err := b.pool.Exec(t.Context(), `alter table settle.tasks rename column hidden to token`); err != nil {
		t.Fatal(err)
	}
	ready(t, e.Ready)
	if m.series()["settle_heartbeat_failures_total{clock=lease}"] < 1 {
		t.Errorf("not counted: %v", m.series())
	}
}

// D-07: heartbeats that the broker does not hear are counted, though they could be written.
func TestHeartbeatsThatTheBrokerDoesNotHearAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.measured()
	proxy := rig.NewNATSProxy(t, b.js.Conn().ConnectedUrl())
	b.js = connectThrough(t, proxy)
	entered, release := b.pay.hold()
	b.kind.Policy.Deadline = time.Minute
	b.run()
	b.publish(plainJob)
	await(t, entered, "the job begins")
	proxy.PauseClientToServer()
	lost := func() bool { return m.series()["settle_heartbeat_failures_total{clock=ack_wait}"] >= 1 }
	if !eventually(t, 20*time.Second, lost) {
		t.Errorf("not counted: %v", m.series())
	}
	proxy.Resume()
	release()
	b.awaitStatus("pay_1", idemstore.Finished)
}

func TestABridgeIsReadyWhileItTakesEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	m := b.measured()
	bridge, err := NewBridge(b.pool, b.js, BridgeConfig{Stream: "ORDERS", Kinds: map[string]Definition{"placed": b.kind},
		Logger: b.conf.Logger, MeterProvider: b.conf.MeterProvider})
	if err != nil {
		t.Fatal(err)
	}
	if bridge.Ready() == nil {
		t.Error("ready although it does not run")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bridge.Run(ctx) }()
	ready(t, bridge.Ready)
	if _, err := b.js.Publish(t.Context(), "orders.new", []byte(`no event`)); err != nil {
		t.Fatal(err)
	}
	m.await(map[string]float64{"settle_bridge_events_total{outcome=refused}": 1, "settle_bridge_events_total{outcome=published}": 0,
		"settle_refusals_total{reason=malformed}": 1})
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	unready(t, bridge.Ready, "ORDERS")
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	ready(t, bridge.Ready)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if bridge.Ready() == nil {
		t.Error("ready although it has stopped")
	}
}
