package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// scenario is one key of a kind of its own at a provider of its own. play runs many of them on one engine.
type scenario struct {
	name string
	// set scripts the provider and changes the kind.
	set func(*payProvider, *Kind[payJob, paid])
	// row is there before the first message: columns and their SQL, over those of oldRow.
	row map[string]string
	// messages are published in this order; one plain job if this is nil.
	messages []string
	// want is what everybody sees when all is quiet again: the row, the provider, the local rows, the broker, the audit.
	want string
}

const plainJob = `{"order":"1"}`

// once is a tempo at which nothing happens twice: each wait tells from its length what it was.
var once = Policy{Deadline: 2 * time.Second, BackoffMin: time.Hour, BackoffMax: 8 * time.Hour, RetryAfterMax: 20 * time.Hour,
	MisconfiguredWait: 100 * time.Hour, MaxAge: 1000 * time.Hour}

const (
	longAbsent = 50 * time.Hour // an AbsentAfter that no test lives to see
	askedWait  = 10 * time.Hour // a provider's wish
	pollWait   = 5 * time.Hour
)

// waited names the wait that a row was left with at the tempo of once.
func waited(d time.Duration) string {
	near := func(x time.Duration) bool { return d > x-time.Minute && d < x+time.Minute }
	switch {
	case near(pollWait):
		return "poll"
	case d > askedWait-time.Minute && d < askedWait+once.BackoffMin:
		return "asked"
	case near(once.RetryAfterMax):
		return "cut"
	case near(longAbsent):
		return "settled"
	case d >= once.BackoffMin/2 && d <= once.BackoffMin:
		return "short"
	case d > once.BackoffMin && d <= 2*once.BackoffMin:
		return "backoff"
	case d >= once.MisconfiguredWait/2 && d < once.MisconfiguredWait:
		return "long"
	}
	return d.String()
}

// oldRow is a task that an attempt before left as unknown, just now.
var oldRow = map[string]string{"status": `'unknown'`, "unsure": `true`, "sending": `false`, "attempts": `1`,
	"token": `gen_random_uuid()`, "first_sent_at": `clock_timestamp()`, "last_sent_by": `clock_timestamp()`,
	"give_up_at": `clock_timestamp() + interval '1000 hours'`, "provider": `'test'`}

// hoursAgo is a time by the database clock.
func hoursAgo(n int) string { return fmt.Sprintf("clock_timestamp() - interval '%d hours'", n) }

// playing is one scenario while it runs.
type playing struct {
	scenario
	b         *bench
	kind      Kind[payJob, paid]
	pay       *payProvider
	sequences []uint64
}

// play runs scenarios side by side on one engine and compares what they come to.
func (b *bench) play(scenarios []scenario) {
	b.t.Helper()
	b.exec(`create table public.booked (kind text primary key, id text, refused text, source int)`)
	b.conf.Policy, b.conf.Slots, b.conf.Breaker = once, 1, -1 // the scenarios have one provider, to the engine
	heard := b.listen()
	var all []*playing
	var kinds []Definition
	for i, s := range scenarios {
		p := b.stage(fmt.Sprintf("case.n%d", i), s)
		all, kinds = append(all, p), append(kinds, p.kind)
	}
	_, stop := b.serve(kinds...)
	for _, p := range all {
		p.publish()
	}
	limit := time.Now().Add(12 * time.Second)
	for _, p := range all {
		b.t.Run(p.name, func(t *testing.T) {
			var got string
			if !eventually(t, max(time.Until(limit), time.Second), func() bool { got = p.seen(t, heard); return got == p.want }) {
				t.Errorf("it came to\n%s\nwant\n%s", got, p.want)
			}
		})
	}
	stop()
	for _, p := range all { // nothing more happened while the engine went on, and when it drained
		if got := p.seen(b.t, heard); got != p.want && !b.t.Failed() {
			b.t.Errorf("%s: in the end it came to\n%s\nwant\n%s", p.name, got, p.want)
		}
	}
}

// stage prepares kind, provider and row.
func (b *bench) stage(name string, s scenario) *playing {
	b.t.Helper()
	p := &playing{scenario: s, b: b, pay: newPayProvider(b.t)}
	p.want = strings.Join(strings.FieldsFunc(p.want, func(r rune) bool { return r == '\n' || r == '\t' }), "\n")
	p.pay.poll = pollWait
	p.kind = p.pay.kind()
	p.kind.Name, p.kind.Provider.KeyPrefix = name, ""
	p.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Exec(`insert into public.booked values ($1, $2, $3, $4)`, name, f.ExternalID, f.Refused, int(f.Source))
		w.Emit("events."+name, f.Key, f.Result)
		return nil
	}
	if s.set != nil {
		s.set(p.pay, &p.kind)
	}
	if s.row != nil {
		b.insert(p.kind, plainJob, s.row)
	}
	if p.messages == nil {
		p.messages = []string{plainJob}
	}
	return p
}

// insert writes a task by hand.
func (b *bench) insert(kind Kind[payJob, paid], body string, row map[string]string) {
	b.t.Helper()
	d, err := kind.define()
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := d.read([]byte(body), maxBody)
	if err != nil {
		b.t.Fatal(err)
	}
	columns := maps.Clone(oldRow)
	maps.Copy(columns, row)
	payload := j.payload
	if other, ok := columns["payload"]; ok {
		payload = []byte(other)
		delete(columns, "payload")
	}
	columns["hash_algorithm"] = or(columns["hash_algorithm"], "'"+hashAlgorithm+"'")
	columns["provider_key"] = or(columns["provider_key"], "'"+providerKey(kind.Name, j.key, kind.Provider.KeyPrefix)+"'")
	names := slices.Sorted(maps.Keys(columns))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = columns[n]
	}
	b.exec(`insert into settle.tasks (kind, key, payload_hash, payload, `+strings.Join(names, ", ")+`)
		values ($1, $2, $3, $4, `+strings.Join(values, ", ")+`)`,
		kind.Name, j.key, j.hash, payload)
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (p *playing) publish() {
	p.b.t.Helper()
	for _, body := range p.messages {
		answer, err := p.b.js.Publish(p.b.t.Context(), subject(p.kind.Name), []byte(body))
		if err != nil {
			p.b.t.Fatal(err)
		}
		p.sequences = append(p.sequences, answer.Sequence)
	}
}

// seen is what everybody sees of the scenario.
func (p *playing) seen(t *testing.T, heard *advisories) string {
	t.Helper()
	lines := []string{p.rowSeen(t), p.providerSeen()}
	if booked := p.booked(t); booked != "" {
		lines = append(lines, booked)
	}
	if len(p.sequences) > 0 {
		lines = append(lines, p.brokerSeen(heard))
	}
	lines = append(lines, p.refusals(t)...)
	return strings.Join(append(lines, p.audit(t)...), "\n")
}

func (p *playing) task(t *testing.T) (idemstore.Task, bool) {
	t.Helper()
	all, err := p.b.store.List(context.WithoutCancel(t.Context()), idemstore.Filter{Kind: p.kind.Name})
	if err != nil || len(all) > 1 {
		t.Fatalf("%d tasks (%v)", len(all), err)
	}
	if len(all) == 0 {
		return idemstore.Task{}, false
	}
	return all[0], true
}

// rowSeen is the row, without what differs from run to run.
func (p *playing) rowSeen(t *testing.T) string {
	t.Helper()
	row, ok := p.task(t)
	if !ok {
		return "no row"
	}
	status := string(row.Status)
	if row.Cause != "" {
		status += fmt.Sprintf(" (%s)", row.Cause)
	}
	out := []string{fmt.Sprintf("%s attempt %d", status, row.Attempt)}
	add := func(condition bool, format string, args ...any) {
		if condition {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(row.Failures > 0, "failures %d", row.Failures)
	add(row.Unsure, "unsure")
	add(row.LeaseUntil != nil, "leased")
	add(row.AbsentAt != nil, "absent once")
	add(row.ExternalID != "", "id %s", row.ExternalID)
	add(row.EvidenceID != "", "evidence %s", row.EvidenceID)
	add(row.ErrorClass != "", "class %s", row.ErrorClass)
	add(row.Status == idemstore.Started && row.LeaseUntil == nil && row.FirstSentAt == nil, "released")
	add(row.Duplicates > 0, "duplicates %d", row.Duplicates)
	add(row.LeaseUntil == nil && (row.Status == idemstore.Started || row.Status == idemstore.Unknown), "wait %s", waited(row.NextAttemptAt.Sub(row.UpdatedAt)))
	add(len(row.Result) > 0, "%s", row.Result)
	return strings.Join(out, ", ")
}

func (p *playing) providerSeen() string {
	w, e, lookups := p.pay.counts()
	return fmt.Sprintf("W=%d E=%d asks=%d", w, e, lookups)
}

// booked are the local rows and the event of a final outcome.
func (p *playing) booked(t *testing.T) string {
	t.Helper()
	var (
		out    string
		events uint64 // in the outbox still, or published
	)
	err := p.b.pool.QueryRow(context.WithoutCancel(t.Context()), `select
		coalesce((select string_agg(format('booked %s by %s', coalesce(nullif(refused, ''), id), source), ' ') from public.booked where kind = $1), ''),
		(select count(*) from settle.outbox o join settle.tasks t on t.id = o.task_id where t.kind = $1)`,
		p.kind.Name).Scan(&out, &events)
	if err != nil {
		t.Fatal(err)
	}
	events += p.eventsOut(t)
	if (events > 0) != (out != "") {
		return fmt.Sprintf("%s with %d events", out, events)
	}
	for source, name := range map[Source]string{Performed: "perform", LookedUp: "look-up", Checked: "check"} {
		out = strings.ReplaceAll(out, fmt.Sprintf(" by %d", source), " by "+name)
	}
	return out
}

// eventsOut counts the events of the kind that were published.
func (p *playing) eventsOut(t *testing.T) uint64 {
	t.Helper()
	stream, err := p.b.js.Stream(context.WithoutCancel(t.Context()), eventStream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(context.WithoutCancel(t.Context()), jetstream.WithSubjectFilter(eventSubjects+p.kind.Name))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects[eventSubjects+p.kind.Name]
}

// brokerSeen is what was said about each message.
func (p *playing) brokerSeen(heard *advisories) string {
	var out []string
	for _, sequence := range p.sequences {
		said := heard.about(sequence)
		_, err := p.b.stream().GetMsg(context.Background(), sequence)
		switch {
		case err == nil:
			said = append(said, "kept")
		case !slices.Contains(said, "term"):
			said = append(said, "ack")
		}
		out = append(out, strings.Join(said, " "))
	}
	return strings.Join(out, "; ")
}

// audit are the task's audit lines.
func (p *playing) audit(t *testing.T) (out []string) {
	t.Helper()
	row, _ := p.task(t)
	events, err := p.b.store.Events(context.WithoutCancel(t.Context()), row.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		text := fmt.Sprintf("%s: %s", e.NewStatus, e.Reason)
		if e.ExternalID != "" {
			text += " (" + e.ExternalID + ")"
		}
		out = append(out, text)
	}
	return out
}

// refusals are the messages that were not accepted, and why.
func (p *playing) refusals(t *testing.T) []string {
	t.Helper()
	rows, err := p.b.pool.Query(context.WithoutCancel(t.Context()), `select reason || case when task_id is not null then ' with the task' else '' end
		|| case when cut then ', cut' else '' end from settle.refusals where kind = $1 order by sequence`, p.kind.Name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		return nil
	}
	return []string{"refused: " + strings.Join(out, "; ")}
}

// advisories are what the broker itself says of naks and terms.
type advisories struct {
	mu   sync.Mutex
	said map[uint64][]string
}

// listen hears all naks and terms from now on.
func (b *bench) listen() *advisories {
	b.t.Helper()
	a := &advisories{said: map[uint64][]string{}}
	for verb, name := range map[string]string{"nak": "MSG_NAKED", "term": "MSG_TERMINATED"} {
		_, err := b.js.Conn().Subscribe("$JS.EVENT.ADVISORY.CONSUMER."+name+"."+jobStream+".*", func(m *nats.Msg) {
			var advisory struct {
				Sequence uint64 `json:"stream_seq"`
			}
			_ = json.Unmarshal(m.Data, &advisory)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.said[advisory.Sequence] = append(a.said[advisory.Sequence], verb)
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.js.Conn().Flush(); err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (a *advisories) about(sequence uint64) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.said[sequence])
}
