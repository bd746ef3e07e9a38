package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// A worker goes by the AckWait of a consumer that is there, and by the setting where there is none.
func TestTheConsumersAckWaitCounts(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) func(*jetstream.ConsumerConfig) {
		return func(c *jetstream.ConsumerConfig) { c.AckWait = d }
	}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string // id, kind, fix
	}{
		"a short one": {func(f *Facts) { f.changeConsumer(wait(5 * time.Second)); f.Config.Lease = 10 * time.Second },
			"heartbeat-short test.pay nats consumer edit JOBS test-pay --wait=30s"},
		"a shorter one than the lease": {func(f *Facts) { f.changeConsumer(wait(10 * time.Second)) },
			"lease-over-ack-wait test.pay nats consumer edit JOBS test-pay --wait=30s, or a shorter SETTLE_LEASE"},
		"a short setting, and a consumer": {func(f *Facts) { f.Config.AckWait, f.Config.Lease, f.Kinds = 5*time.Second, 30*time.Second, f.Kinds[:1] }, ""},
		"a short setting, and no consumer": {func(f *Facts) { f.Config.AckWait, f.Config.Lease, f.Kinds = 5*time.Second, 10*time.Second, f.Kinds[1:] },
			"heartbeat-short  SETTLE_ACK_WAIT=30s"},
		"a short setting, and no broker": {func(f *Facts) {
			f.Config.AckWait, f.Config.Lease, f.Kinds, f.Broker = 5*time.Second, 10*time.Second, f.Kinds[:1], nil
		}, "heartbeat-short  SETTLE_ACK_WAIT=30s"},
		"BackOff": {func(f *Facts) {
			f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.AckWait, c.BackOff = time.Second, []time.Duration{time.Second} })
		}, ""},
	} {
		f := healthy()
		c.change(&f)
		var got []string
		for _, x := range Examine(f).Findings {
			if x.ID == "heartbeat-short" || x.ID == "lease-over-ack-wait" {
				got = append(got, x.ID+" "+x.Kind+" "+x.Fix)
			}
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s: found %q\nwant %q", name, s, c.want)
		}
	}
}

// What a fix of the database says is safe to do as it stands.
func TestFixes(t *testing.T) {
	t.Parallel()
	lack := func(l idemstore.Lack) func(*Facts) { return func(f *Facts) { f.Database.Lacks = []idemstore.Lack{l} } }
	streams := func(n int, names ...string) func(*Facts) {
		return func(f *Facts) {
			s := &f.Database.Server
			s.StandbyNames, s.SynchronousStandbys, s.Standbys, s.NamesOfStandbys = "", 0, n, names
		}
	}
	const set = `alter system set synchronous_standby_names = `
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"two standbys": {streams(2, "a", `o'dd "b"`), set + `'ANY 1 ("a", "o''dd ""b""")'; select pg_reload_conf();`},
		"one standby": {streams(1, "a"), "add a second standby first: with one, its loss stops all commits. Then, with the names of both: " +
			set + `'ANY 1 ("a")'; select pg_reload_conf();`},
		"no name": {streams(1), "give the standby a name (application_name in its primary_conninfo), then ask again"},
		"no index": {lack(idemstore.Lack{What: "index", Name: "i", On: "settle", Columns: "on settle.tasks (id)"}),
			"create index concurrently i on settle.tasks (id); or settle migrate, which locks the table against writes while it builds"},
		"an invalid index": {lack(idemstore.Lack{What: "index", Name: "i", On: "settle", Columns: "on settle.tasks (id)", Invalid: true}),
			"one statement at a time, unless it is being built now (pg_stat_progress_create_index): " +
				"drop index concurrently settle.i; create index concurrently i on settle.tasks (id);"},
	} {
		f := healthy()
		c.change(&f)
		if found := Examine(f).Findings; len(found) != 1 || found[0].Fix != c.want {
			t.Errorf("%s: %+v\nwant %s", name, found, c.want)
		}
	}
}

// A privilege that only some kinds need counts where one of them is served.
func TestPrivilegesFitTheKinds(t *testing.T) {
	t.Parallel()
	for use, serve := range map[idemstore.Use]func(*consumer.Description){
		idemstore.UseAlways: func(*consumer.Description) {},
		idemstore.UseSteps:  func(k *consumer.Description) { k.HasSteps = true },
		idemstore.UseGuard:  func(k *consumer.Description) { k.HasOrderGuard = true },
		idemstore.UsePrefix: func(k *consumer.Description) { k.Provider.KeyPrefix = "order_" },
		idemstore.UseCap:    func(k *consumer.Description) { k.Provider.MaxInFlight = 1 },
	} {
		f := healthy()
		f.Database.Lacks = []idemstore.Lack{{What: "privilege", Name: "insert", On: "settle.x", Use: use}}
		serve(&f.Kinds[0])
		if found := ExamineStart(f).Findings; len(found) != 1 || found[0].ID != "privilege-missing" || found[0].Severity != Error {
			t.Errorf("%q: %+v", use, found)
		}
	}
}
