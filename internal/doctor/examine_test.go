package doctor

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// healthy are the facts of an installation with nothing wrong.
func healthy() Facts {
	config := consumer.DefaultConfig()
	provider := consumer.DefaultProvider()
	charge := consumer.Description{Name: "test.pay", Subject: "jobs.test.pay", Consumer: "test-pay", Policy: config.Policy, Provider: provider,
		HasLookup: true, UsableKey: 23 * time.Hour, LongestDelay: time.Hour}
	local := consumer.Description{Name: "test.note", Subject: "jobs.test.note", Consumer: "test-note", Policy: config.Policy, Local: true, LongestDelay: time.Hour}
	return Facts{
		Config: config, Kinds: []consumer.Description{charge, local}, ProviderTimeout: 10 * time.Second, PoolSize: 16, Compared: true,
		Database: &Database{Server: idemstore.Server{User: "settle", Fsync: true, FullPageWrites: true, SynchronousCommit: "on", Connections: 97,
			Standbys: 2, SynchronousStandbys: 1, StandbyNames: "ANY 1 (*)"}},
		Broker: &Broker{MaxPayload: 1 << 20, Sync: &Sync{Every: 2 * time.Minute},
			Jobs: &jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
				Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, Replicas: 3},
			Consumers: map[string]jetstream.ConsumerConfig{"test.pay": {Durable: "test-pay", AckPolicy: jetstream.AckExplicitPolicy,
				FilterSubject: "jobs.test.pay", AckWait: config.AckWait, MaxDeliver: -1, MaxAckPending: 20000, Replicas: 3}}},
	}
}

func (f *Facts) changeConsumer(change func(*jetstream.ConsumerConfig)) {
	c := f.Broker.Consumers["test.pay"]
	change(&c)
	f.Broker.Consumers["test.pay"] = c
}

func drifting(sort consumer.DriftSort, person bool) func(*Facts) {
	return func(f *Facts) {
		f.Drift = []consumer.Drift{{Sort: sort, Count: 3, NeedsPerson: person, What: "3 of them", Do: "something"}}
	}
}

// sick is, for each check, what makes exactly its finding appear.
var sick = map[string]func(*Facts){
	"database-away":              func(f *Facts) { f.Database, f.DatabaseError = nil, "refused" },
	"broker-away":                func(f *Facts) { f.Broker, f.BrokerError = nil, "no servers" },
	"heartbeat-short":            func(f *Facts) { f.Config.Lease = 5 * time.Second },
	"lease-over-ack-wait":        func(f *Facts) { f.Config.Lease = time.Minute + 1 },
	"http-timeout-over-deadline": func(f *Facts) { f.ProviderTimeout = 20*time.Second + 1 },
	"drain-under-timeout":        func(f *Facts) { f.Config.DrainTimeout = 10*time.Second - 1 },
	"delay-over-max-age":         func(f *Facts) { f.Kinds[1].LongestDelay = 24 * time.Hour },
	"deadline-over-max-age":      func(f *Facts) { f.Kinds[1].Policy.Deadline = 24 * time.Hour },
	"absent-under-timeout": func(f *Facts) {
		f.Kinds[0].Provider.Unkeyed, f.Kinds[0].UsableKey, f.Kinds[0].Provider.AbsentAfter = true, 0, 10*time.Second-1
	},
	"no-lookup":                  func(f *Facts) { f.Kinds[0].HasLookup = false },
	"pool-small":                 func(f *Facts) { f.PoolSize = 3; f.Config.Slots = 1 },
	"pool-under-slots":           func(f *Facts) { f.Config.Slots = 257 },
	"key-lifetime-margin":        func(f *Facts) { f.Kinds[0].UsableKey = 0 },
	"key-lifetime-under-max-age": func(f *Facts) { f.Kinds[0].Provider.KeyLifetime = 24*time.Hour - 1 },
	"key-lifetime-under-replay":  func(f *Facts) { f.Config.ProofRetention = 365 * 24 * time.Hour },
	"proof-age":                  func(f *Facts) { f.ProofAge = consumer.ErrProofAge },
	"exec-mode":                  func(f *Facts) { f.Database.ExecMode = idemstore.ErrExecMode },
	"read-only":                  func(f *Facts) { f.Database.Server.ReadOnly = true },
	"fsync-off":                  func(f *Facts) { f.Database.Server.Fsync = false },
	"full-page-writes-off":       func(f *Facts) { f.Database.Server.FullPageWrites = false },
	"synchronous-commit":         func(f *Facts) { f.Database.Server.SynchronousCommit = "remote_write" },
	"standby-asynchronous":       func(f *Facts) { f.Database.Server.StandbyNames = "" },
	"standby-missing":            func(f *Facts) { f.Database.Server.Standbys, f.Database.Server.SynchronousStandbys = 0, 0 },
	"clock-database":             func(f *Facts) { f.Database.Clock = Clock{Least: -time.Hour, Most: -2*time.Second - 1} },
	"pool-over-server":           func(f *Facts) { f.PoolSize = 98 },
	"schema":                     func(f *Facts) { f.Database.Schema = idemstore.ErrSchema },
	"index-missing":              func(f *Facts) { f.Database.Lacks = []idemstore.Lack{{What: "index", Name: "tasks_open", On: "settle"}} },
	"constraint-missing": func(f *Facts) {
		f.Database.Lacks = []idemstore.Lack{{What: "constraint", Name: "tasks_one_row_per_key", On: "settle"}}
	},
	"privilege-missing": func(f *Facts) {
		f.Database.Lacks = []idemstore.Lack{{What: "privilege", Name: "insert", On: "settle.tasks"}}
	},
	"privilege-of-charts": func(f *Facts) {
		f.Database.Lacks = []idemstore.Lack{{What: "privilege", Name: "update", On: "settle.refusals", Use: idemstore.UseCharts}}
	},
	"privilege-of-operators": func(f *Facts) {
		f.Database.Lacks = []idemstore.Lack{{What: "privilege", Name: "update", On: "settle.refusals", Use: idemstore.UseOperators}}
	},
	"monitor-away":       func(f *Facts) { f.Broker.Sync, f.Broker.Monitor = nil, "status 404" },
	"stream-message-ttl": func(f *Facts) { f.Broker.Jobs.AllowMsgTTL = true },
	"max-payload":        func(f *Facts) { f.Broker.MaxPayload = int64(f.Config.MaxBody) },
	"sync-interval":      nil, // beside stream-replicas, see below
	"stream-missing":     func(f *Facts) { f.Broker.Jobs, f.Broker.Consumers = nil, nil; f.Broker.Sync = nil },
	"stream-lost": func(f *Facts) {
		f.Broker.Jobs, f.Broker.Consumers, f.Broker.Sync, f.Database.HasTasks = nil, nil, nil, true
	},
	"stream-replicas":   func(f *Facts) { f.Broker.Jobs.Replicas, f.Broker.Sync = 1, &Sync{Always: true} },
	"stream-subjects":   func(f *Facts) { f.Broker.Jobs.Subjects = []string{"jobs.payment.>"} },
	"duplicates-window": func(f *Facts) { f.Broker.Jobs.Duplicates = time.Second },
	"clock-broker":      func(f *Facts) { f.Broker.Clock = Clock{Least: 3 * time.Second, Most: 4 * time.Second} },
	"stream-retention":  func(f *Facts) { f.Broker.Jobs.Retention = jetstream.LimitsPolicy },
	"stream-storage":    func(f *Facts) { f.Broker.Jobs.Storage = jetstream.MemoryStorage },
	"stream-discard":    func(f *Facts) { f.Broker.Jobs.Discard, f.Broker.Jobs.MaxMsgs = jetstream.DiscardOld, 1000 },
	"stream-max-age":    func(f *Facts) { f.Broker.Jobs.MaxAge = 24 * time.Hour },
	"consumer-backoff": func(f *Facts) {
		f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second} })
	},
	"consumer-ack-policy": func(f *Facts) {
		f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy })
	},
	"consumer-filter": func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.FilterSubject = "jobs.>" }) },
	"consumer-ack-wait": func(f *Facts) {
		f.Config.AckWait, f.Config.Lease = 999*time.Millisecond, time.Second // heartbeat-short as well
		f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.AckWait = 999 * time.Millisecond })
	},
	"consumer-max-deliver":      func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }) },
	"consumer-max-ack-pending":  func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 255 }) },
	"consumer-ack-wait-differs": func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.AckWait = 31 * time.Second }) },
	"consumer-replicas":         func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.Replicas = 1 }) },
	"messages-given-up":         drifting(consumer.DriftGivenUp, true),
	"messages-unrouted":         drifting(consumer.DriftUnrouted, true),
	"messages-settled":          drifting(consumer.DriftSettled, true),
	"tasks-without-message":     drifting(consumer.DriftGone, true),
}

// together are findings that cannot come alone.
var together = map[string]string{"consumer-ack-wait": "heartbeat-short"}

func TestNothingWrong(t *testing.T) {
	t.Parallel()
	r := Examine(healthy())
	if len(r.Findings) != 0 || r.Left != 0 || r.Made != len(checks()) {
		t.Errorf("%d checks made, %d not; found %+v", r.Made, r.Left, r.Findings)
	}
	if len(r.Assumptions) < 7 {
		t.Errorf("assumptions: %+v", r.Assumptions)
	}
}

func TestEachCheckFindsItsOwn(t *testing.T) {
	t.Parallel()
	for _, c := range checks() {
		makeSick, known := sick[c.id]
		if !known {
			t.Errorf("nothing makes %s appear", c.id)
		}
		if makeSick == nil {
			continue
		}
		f := healthy()
		makeSick(&f)
		r := Examine(f)
		ids := map[string]bool{}
		for _, found := range r.Findings {
			ids[found.ID] = true
			if found.What == "" || found.Why == "" || found.Fix == "" || found.Found.Value == "" || found.Wanted.Value == "" || found.Found == found.Wanted {
				t.Errorf("%s: %+v", c.id, found)
			}
			if found.ID == c.id && found.Severity != c.severity {
				t.Errorf("%s is a %s, want %s", c.id, found.Severity, c.severity)
			}
		}
		delete(ids, together[c.id])
		if !ids[c.id] || len(ids) != 1 {
			t.Errorf("%s found %v", c.id, ids)
		}
		if r.Made+r.Left != len(checks()) {
			t.Errorf("%s: %d checks made, %d not, of %d", c.id, r.Made, r.Left, len(checks()))
		}
	}
	if len(sick) != len(checks()) {
		t.Errorf("%d ways to be sick for %d checks", len(sick), len(checks()))
	}
}

// What a limit allows is allowed: at the limit itself nothing is found.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Facts){
		"heartbeat": func(f *Facts) { f.Config.Lease = 6 * time.Second },
		"lease":     func(f *Facts) { f.Config.Lease = time.Minute },
		"timeout":   func(f *Facts) { f.ProviderTimeout = 20 * time.Second },
		"drain":     func(f *Facts) { f.Config.DrainTimeout = 10 * time.Second },
		"drain, cut timeout": func(f *Facts) {
			f.Kinds[0].Policy.Deadline, f.Config.DrainTimeout, f.ProviderTimeout = 5*time.Second, 5*time.Second, 5*time.Second
		},
		"pool":                func(f *Facts) { f.PoolSize = 4 },
		"slots":               func(f *Facts) { f.Config.Slots = 256 },
		"keys and replays":    func(f *Facts) { f.Config.ProofRetention, f.Config.ReplayHorizon = time.Hour, 24*time.Hour },
		"clocks":              func(f *Facts) { f.Database.Clock = Clock{Least: -time.Hour, Most: time.Hour} },
		"clock, a little off": func(f *Facts) { f.Broker.Clock = Clock{Least: 2 * time.Second, Most: 3 * time.Second} },
		"local commits": func(f *Facts) {
			f.Database.Server = alone(f.Database.Server)
			f.Database.Server.SynchronousCommit = "local"
		},
		"always to the disk":  func(f *Facts) { f.Broker.Sync = &Sync{Always: true, Every: time.Hour} },
		"replicas of streams": func(f *Facts) { f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.Replicas = 0 }) },
		"no consumer yet":     func(f *Facts) { f.Broker.Consumers = nil },
		"another's consumer":  func(f *Facts) { f.Broker.Consumers["x"] = jetstream.ConsumerConfig{} },
		"other drift":         drifting(consumer.DriftSettings, true),
		"privileges of other kinds": func(f *Facts) {
			for _, u := range []idemstore.Use{idemstore.UseSteps, idemstore.UseGuard, idemstore.UsePrefix, idemstore.UseCap} {
				f.Database.Lacks = append(f.Database.Lacks, idemstore.Lack{What: "privilege", Name: "insert", On: "settle.x", Use: u})
			}
		},
		"a synchronous archive of WAL": func(f *Facts) { f.Database.Server.Standbys = 0 },
	} {
		f := healthy()
		change(&f)
		if r := Examine(f); len(r.Findings) != 0 {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

func alone(s idemstore.Server) idemstore.Server {
	s.Standbys, s.SynchronousStandbys, s.StandbyNames = 0, 0, ""
	return s
}

func TestSeveritiesThatDepend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Facts)
		want   map[string]Severity
	}{
		"messages live longer than tasks": {func(f *Facts) { f.Broker.Jobs.MaxAge = 24*time.Hour + 1 }, map[string]Severity{"stream-max-age": Warning}},
		"what ends by itself":             {drifting(consumer.DriftGone, false), map[string]Severity{"tasks-without-message": Note}},
		"one server": {func(f *Facts) {
			f.Broker.Jobs.Replicas = 1
			f.changeConsumer(func(c *jetstream.ConsumerConfig) { c.Replicas = 1 })
		},
			map[string]Severity{"stream-replicas": Warning, "sync-interval": Warning}},
		"commits that nobody waits for": {func(f *Facts) {
			f.Database.Server = alone(f.Database.Server)
			f.Database.Server.SynchronousCommit = "off"
		},
			map[string]Severity{"synchronous-commit": Warning}},
	} {
		f := healthy()
		c.change(&f)
		got := Examine(f).Findings
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, x := range got {
			if x.Severity != c.want[x.ID] {
				t.Errorf("%s: %s is a %s", name, x.ID, x.Severity)
			}
		}
	}
}

// A worker that starts does not repeat what its engine says, and waits for what is away.
func TestStart(t *testing.T) {
	t.Parallel()
	for id, makeSick := range sick {
		if makeSick == nil {
			continue
		}
		f := healthy()
		makeSick(&f)
		said := false
		for _, x := range ExamineStart(f).Findings {
			said = said || x.ID == id
		}
		byEngine := id == "database-away" || id == "broker-away" || id == "exec-mode" || id == "read-only" || id == "schema" || id == "proof-age" || id == "privilege-of-operators" || id == "stream-missing" ||
			strings.HasPrefix(id, "messages-") || strings.HasPrefix(id, "tasks-") ||
			strings.HasPrefix(id, "consumer-") && id != "consumer-ack-wait-differs" && id != "consumer-replicas"
		if said == byEngine {
			t.Errorf("%s: said at the start %v", id, said)
		}
	}
}

func TestAssumptionsFitTheKinds(t *testing.T) {
	t.Parallel()
	named := func(f Facts) (all string) {
		for _, a := range Examine(f).Assumptions {
			all += a.ID + " "
			if a.What == "" || a.Ensure == "" {
				t.Errorf("%+v", a)
			}
		}
		return all
	}
	keyed := healthy()
	unkeyed := healthy()
	unkeyed.Kinds[0].Provider.Unkeyed = true
	none := healthy()
	none.Kinds, none.Broker.Sync = none.Kinds[1:], nil
	const always = "commits-survive database-clock stream-keeps "
	for got, want := range map[string]string{
		named(keyed):   "key-with-effect key-same-request key-lifetime refusals-stored " + always + "stop-grace ",
		named(unkeyed): "absent-is-final no-pause-at-the-socket " + always + "stop-grace ",
		named(none):    always + "sync-interval stop-grace ",
	} {
		if got != want {
			t.Errorf("assumed %s\nwant    %s", got, want)
		}
	}
}

// The page lists what the code checks.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, c := range Checks() {
		want = append(want, "| `"+c.ID+"` | "+string(c.Severity)+" | "+c.About+" |")
	}
	for _, line := range strings.Split(string(page), "\n") {
		if regexp.MustCompile("^\\| `[a-z0-9-]+` \\| (error|warning|note) \\|").MatchString(line) {
			got = append(got, line)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the page lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	for _, c := range []struct{ there, off time.Duration }{{0, 0}, {500 * time.Millisecond, 0}, {time.Second, 0}, {3 * time.Second, 2 * time.Second}, {-2 * time.Second, 2 * time.Second}} {
		if off := clockOf(at.Add(c.there), at, at.Add(time.Second)).Off(); off != c.off {
			t.Errorf("%v: off by at least %v, want %v", c.there, off, c.off)
		}
	}
}
