package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// syncBench is a database, a JetStream and workers for contact.sync.
type syncBench struct {
	t    *testing.T
	pool *pgxpool.Pool
	js   jetstream.JetStream
	conf consumer.Config
}

func newSyncBench(t *testing.T) *syncBench {
	t.Helper()
	b := &syncBench{t: t, pool: devtest.Pool(t), conf: consumer.Config{Slots: 4, AckWait: 10 * time.Second, Lease: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Policy: consumer.Policy{BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond, MaxFailures: 100}}}
	_, b.js = devtest.JetStream(t)
	if err := consumer.EnsureStreams(t.Context(), b.js, b.conf); err != nil {
		t.Fatal(err)
	}
	return b
}

// work starts a worker for contact.sync, which drains at the end of the test.
func (b *syncBench) work() { b.workOn(Contact(ContactOptions{})) }

// workOn starts a worker, which drains at the latest at the end of the test.
func (b *syncBench) workOn(kind consumer.Definition) (stop func()) {
	b.t.Helper()
	e, err := consumer.New(b.pool, b.js, b.conf, kind)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			b.t.Errorf("run: %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	b.t.Cleanup(stop)
	return stop
}

// publishTo adds one message for a kind.
func (b *syncBench) publishTo(kind, body string) {
	b.t.Helper()
	if _, err := b.js.Publish(b.t.Context(), "jobs."+kind, []byte(body)); err != nil {
		b.t.Fatal(err)
	}
}

// publish adds messages of their own, without message ids.
func (b *syncBench) publish(bodies ...string) {
	b.t.Helper()
	for _, body := range bodies {
		if _, err := b.js.Publish(b.t.Context(), "jobs.contact.sync", []byte(body)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// settle waits until each message was acked or termed.
func (b *syncBench) settle() {
	b.t.Helper()
	b.eventually("the stream is empty", func() bool {
		s, err := b.js.Stream(b.t.Context(), "JOBS")
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

func (b *syncBench) eventually(what string, f func() bool) {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); !f(); {
		select {
		case <-tick.C:
		case <-end:
			b.t.Fatal("never: " + what)
		}
	}
}

// one publishes a message and waits for its end.
func (b *syncBench) one(body string) {
	b.t.Helper()
	b.publish(body)
	b.settle()
}

// says is the answer to a query of one text column, in one line.
func (b *syncBench) says(sql string) string {
	b.t.Helper()
	rows, err := b.pool.Query(context.WithoutCancel(b.t.Context()), sql)
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(out, ", ")
}

func (b *syncBench) exec(sql string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatal(err)
	}
}

// contacts are all contacts as "id source version name", with what their task says of them.
const (
	contacts = `select format('%s %s v%s %s', id, source_id, version, name) from shop.contacts order by source_id`
	events   = `select format('%s %s', event_id, result) || case when changed then ' changed' else '' end from shop.import_events order by event_id`
	statuses = `select format('%s %s', count(*), status) from settle.tasks group by status order by status`
)

func (b *syncBench) want(what, sql, want string) {
	b.t.Helper()
	if got := b.says(sql); got != want {
		b.t.Errorf("%s: %s; want %s", what, got, want)
	}
}

// D-35: version 2, then version 1.
func TestD35OlderAfterNewer(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.work()
	b.one(contact("b", 2, "new"))
	b.one(contact("a", 1, "old"))
	b.want("contact", contacts, "1 42 v2 new")
	b.want("events", events, "a stale, b imported changed")
	b.want("results", `select result from settle.tasks order by id`,
		`{"contact_id":1,"source_id":"42","result":"imported","changed":true}, {"contact_id":1,"source_id":"42","result":"stale","changed":false}`)
	b.want("search", `select format('%s=%s %s', r.name, r.value, t.key) from settle.task_refs r join settle.tasks t on t.id = r.task_id order by t.id`,
		"customer=42 crm_contact_42/b, customer=42 crm_contact_42/a")
}

// D-35: both at the same time on two workers, about a contact that is there and about one that is not. The test holds
// the contact until both workers wait for it.
func TestD35BothAtOnce(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"a contact that is there": `select from shop.contacts where source_id = '42' for update`,
		"a new contact":           `insert into shop.contacts (source_id, version, name, email, checksum, task_id) values ('42', 9, '', '', '', 0)`,
	} {
		for order, versions := range map[string][2]int{"older first": {1, 2}, "newer first": {2, 1}} {
			t.Run(name+", "+order, func(t *testing.T) {
				t.Parallel()
				b := newSyncBench(t)
				b.conf.Slots = 1
				if strings.HasPrefix(hold, "select") {
					b.exec(`insert into shop.contacts (source_id, version, name, email, checksum, task_id) values ('42', 0, '', '', '', 0)`)
				}
				tx, err := b.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), hold); err != nil {
					t.Fatal(err)
				}
				b.work()
				b.work()
				for _, v := range versions {
					b.publish(contact(fmt.Sprint("v", v), v, fmt.Sprint("name ", v)))
				}
				b.eventually("two workers wait for the contact", func() bool {
					return b.says(`select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
						and query like '%shop.contacts%'`) == "2"
				})
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.settle()
				b.want("contact", `select format('%s v%s %s', source_id, version, name) from shop.contacts`, "42 v2 name 2")
				b.want("tasks", statuses, "2 finished")
				if got := b.says(events); got != "v1 imported changed, v2 imported changed" && got != "v1 stale, v2 imported changed" {
					t.Errorf("events: %s", got)
				}
			})
		}
	}
}

// D-35: version 1 waits for its next delivery while version 2 completes.
func TestD35OlderWaits(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.exec(`create table public.broken ()`)
	b.exec(`create function public.refuse() returns trigger language plpgsql as $$
		begin
			if new.source_version = 1 and to_regclass('public.broken') is not null then raise exception 'not now'; end if;
			return new;
		end $$`)
	b.exec(`create trigger refuse before insert on shop.import_events for each row execute function public.refuse()`)
	b.work()
	b.publish(contact("a", 1, "old"))
	b.eventually("version 1 failed", func() bool { return b.says(`select 'failed' from settle.tasks where failures > 0`) != "" })
	b.want("contacts after the failure", contacts, "")
	b.publish(contact("b", 2, "new"))
	b.eventually("version 2 is done", func() bool { return b.says(events) == "b imported changed" })
	b.exec(`drop table public.broken`)
	b.settle()
	b.want("contact", `select format('v%s %s', version, name) from shop.contacts`, "v2 new")
	b.want("events", events, "a stale, b imported changed")
	b.want("attempts", `select 'retried' from shop.import_events where event_id = 'a' and attempt > 1`, "retried")
	b.want("tasks", statuses, "2 finished")
}

// Events of the same age: they agree, or the greater checksum wins, whichever comes first.
func TestContactTies(t *testing.T) {
	t.Parallel()
	one, other := contact("a", 3, "Ann"), contact("b", 3, "Bob")
	winner := map[bool]string{true: "Ann", false: "Bob"}[sumOf(t, one) > sumOf(t, other)]
	for name, bodies := range map[string][]string{"one first": {one, other}, "other first": {other, one}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSyncBench(t)
			b.work()
			for _, body := range bodies {
				b.one(body)
			}
			first := map[bool]string{true: "a", false: "b"}[bodies[0] == one]
			second := map[bool]string{true: "b", false: "a"}[first == "a"]
			changed := map[bool]string{true: " changed", false: ""}[(second == "a") == (winner == "Ann")]
			b.want("contact", contacts, "1 42 v3 "+winner)
			b.want("events", `select format('%s %s', event_id, result) || case when changed then ' changed' else '' end from shop.import_events order by id`,
				first+" imported changed, "+second+" tie"+changed)
			b.one(contact("c", 3, winner))
			b.want("a third that agrees", `select result from shop.import_events where event_id = 'c'`, "duplicate")
			b.want("contact", contacts, "1 42 v3 "+winner)
		})
	}
}

func sumOf(t *testing.T, body string) string {
	t.Helper()
	version := int64(3)
	j := ContactJob{SourceID: consumer.NewID("42"), Version: &version, Email: "a@b.example", Name: "Ann"}
	if strings.Contains(body, "Bob") {
		j.Name = "Bob"
	}
	e, err := j.edition()
	if err != nil {
		t.Fatal(err)
	}
	return j.checksum(e)
}

// Times that differ below the microsecond, which is all that a timestamptz holds.
func TestContactFullPrecision(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.work()
	at := func(text, name string) string {
		return fmt.Sprintf(`{"source_id":42,"updated_at":%q,"name":%q,"email":""}`, text, name)
	}
	b.one(at("2026-11-29T10:00:00.1234562Z", "newer"))
	b.one(at("2026-11-29T10:00:00.12345619999Z", "older"))
	b.want("older by less than a nanosecond", contactsAt, "2026-11-29T10:00:00.1234562Z newer")
	b.one(at("2026-11-29T11:00:00.12345620000000001+01:00", "newest"))
	b.want("newer by less than a nanosecond", contactsAt, "2026-11-29T11:00:00.12345620000000001+01:00 newest")
	b.want("for people", `select format('%s', updated_at = '2026-11-29 10:00:00.123456Z') from shop.contacts`, "t")
	b.want("events", `select format('%s %s', source_updated_at_exact, result) from shop.import_events order by id`, "2026-11-29T10:00:00.1234562Z imported, "+
		"2026-11-29T10:00:00.12345619999Z stale, 2026-11-29T11:00:00.12345620000000001+01:00 imported")
	b.want("keys", `select key from settle.tasks order by id limit 1`, "crm_contact_42//t2026-11-29T10:00:00.1234562Z")
}

const contactsAt = `select format('%s %s', updated_at_exact, name) from shop.contacts`

// What cannot be used ends as a refusal, and what cannot be compared with a person. The contact stays as it is.
func TestContactBadInput(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.work()
	b.one(contact("a", 1, "Ann"))
	for body, reason := range map[string]string{
		`{"source_id":42,"event_id":"x"}`:                                            "bad_key",
		`{"source_id":42,"event_id":"x","version":"2"}`:                              "bad_key",
		`{"source_id":42,"event_id":"x","version":1.5}`:                              "bad_key",
		`{"source_id":42,"event_id":"x","version":99999999999999999999}`:             "bad_key",
		`{"source_id":42,"event_id":"x","updated_at":5}`:                             "bad_key",
		`{"source_id":42,"event_id":"x","updated_at":"soon"}`:                        "bad_key",
		`{"source_id":42,"event_id":"` + strings.Repeat("x", 600) + `","version":2}`: "bad_key",
		`{"source_id":"4\u0000","version":2}`:                                        "bad_key",
		`{"source_id":42,"version":2,"name":"a\u0000"}`:                              "bad_key",
		`{"source_id":42,"version":2,"name":5}`:                                      "malformed",
		`{"source_id":42,"version":2,"Version":3}`:                                   "malformed",
		`[]`:                             "malformed",
		contact("a", 2, "other content"): "conflict",
	} {
		b.one(body)
		b.want(body, `select reason from settle.refusals order by id desc limit 1`, reason)
	}
	b.one(`{"source_id":42,"updated_at":"2026-11-29T10:00:00Z","name":"?","email":""}`)
	b.want("not comparable", `select last_error from settle.tasks where status = 'needs_review'`,
		"event and contact cannot be compared: one has only a version, the other only updated_at")
	b.want("contact", contacts, "1 42 v1 Ann")
	b.want("events", events, "a imported changed")
	b.want("tasks", statuses, "1 finished, 1 needs_review")
}

// A11: for record 42 one can say which of its arrivals was imported, stale or retried.
func TestA11ThreeArrivals(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.work()
	b.one(contact("evt_2", 2, "second"))
	b.one(contact("evt_1", 1, "first"))
	b.one(contact("evt_2", 2, "second")) // sent again
	b.want("arrivals", `
		select format('%s v%s: %s in attempt %s, came %s more times; contact %s', e.event_id, e.source_version, e.result, e.attempt, t.duplicates, e.contact_id)
		from shop.import_events e join settle.tasks t on t.id = e.task_id
		where e.source_id = '42' order by e.id`,
		"evt_2 v2: imported in attempt 1, came 1 more times; contact 1, evt_1 v1: stale in attempt 1, came 0 more times; contact 1")
}

// Many contacts, events in any order, several workers: each contact ends at its greatest version.
func TestContactStorm(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.work()
	b.work()
	for _, v := range []int{3, 1, 4, 2, 5, 1, 4} {
		for c := range 20 {
			b.publish(fmt.Sprintf(`{"source_id":%d,"version":%d,"name":"v%d","email":""}`, c, v, v))
		}
	}
	b.settle()
	b.want("contacts", `select format('%s at v%s %s', count(*), version, name) from shop.contacts group by version, name`, "20 at v5 v5")
	b.want("events", `select format('%s of %s', count(distinct task_id), count(*)) from shop.import_events`, "100 of 100")
	b.want("tasks", `select format('%s %s, %s duplicates', count(*), status, sum(duplicates)) from settle.tasks group by status`, "100 finished, 40 duplicates")
}
