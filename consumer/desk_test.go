package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

var byAnna = ActOptions{Actor: "anna", Reason: "the customer called"}

// desk is a bench with an operator at it. The kind books every final outcome in public.booked.
type desk struct {
	*bench
	*Operator
}

func newDesk(t *testing.T, change ...func(*bench)) *desk {
	t.Helper()
	b := newBench(t)
	b.exec(`create table public.booked (key text primary key, id text check (id <> 'pay_refused'), refused text, source int, attempt int)`)
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Exec(`insert into public.booked values ($1, $2, $3, $4, $5)`, f.Key, f.ExternalID, f.Refused, int(f.Source), f.Attempt)
		w.Emit("events.test", f.Key, f.Result)
		return nil
	}
	for _, f := range change {
		f(b)
	}
	o, err := NewOperator(b.pool, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{b, o}
}

// one is the desk's task, order 1.
func (d *desk) one() idemstore.Task {
	d.t.Helper()
	t, err := d.store.Find(d.t.Context(), d.kind.Name, "pay_1")
	if err != nil {
		d.t.Fatal(err)
	}
	return t
}

// is puts order 1 into the table as a row with these columns, and returns it.
func (d *desk) is(row map[string]string) idemstore.Task {
	d.t.Helper()
	d.exec(`truncate settle.tasks, settle.task_refs, settle.task_events, settle.outbox, public.booked cascade`)
	d.insert(d.kind, plainJob, row)
	return d.one()
}

// everything is all that the database knows, as text: what did not change here did not change anywhere.
func (d *desk) everything() string {
	d.t.Helper()
	return d.text(`select (select coalesce(string_agg(t::text, '|' order by id), '') from settle.tasks t)
		|| (select coalesce(string_agg(e::text, '|' order by id), '') from settle.task_events e)
		|| (select coalesce(string_agg(b::text, '|' order by key), '') from public.booked b)
		|| (select coalesce(string_agg(o::text, '|' order by id), '') from settle.outbox o)
		|| (select coalesce(string_agg(r::text, '|' order by name), '') from settle.task_refs r)`)
}

func (d *desk) text(sql string) string {
	d.t.Helper()
	rows, err := d.pool.Query(context.WithoutCancel(d.t.Context()), sql)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[*string])
	if err != nil {
		d.t.Fatal(err)
	}
	if out == nil {
		return ""
	}
	return *out
}

// booked is what local rows say, and how many events there are.
func (d *desk) booked() string {
	d.t.Helper()
	return d.rows() + d.text(`select ', events ' || (select count(*) from settle.outbox)`)
}

// rows is what local rows say.
func (d *desk) rows() string {
	d.t.Helper()
	return d.text(`select coalesce(string_agg(format('%s %s %s %s %s', key, id, refused, source, attempt), '; '), 'nothing') from public.booked`)
}

// history is the reasons in the audit.
func (d *desk) history() []string {
	d.t.Helper()
	events, err := d.store.Events(d.t.Context(), d.one().TaskID)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s: %s", e.Actor, e.Reason))
	}
	return out
}

// states of order 1, as columns over those of oldRow, which is unknown.
var (
	isUnknown  = map[string]string{}
	isExpired  = map[string]string{"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": `clock_timestamp() - interval '1 s'`, "last_sent_by": `null`}
	isLive     = map[string]string{"status": `'started'`, "unsure": `false`, "sending": `true`, "lease_until": `clock_timestamp() + interval '1 h'`, "last_sent_by": `null`}
	isReleased = map[string]string{"status": `'started'`, "unsure": `false`, "first_sent_at": `null`, "last_sent_by": `null`}
	isParked   = map[string]string{"status": `'needs_review'`, "review_cause": `'budget'`, "failures": `5`}
	isUnsent   = map[string]string{"status": `'needs_review'`, "review_cause": `'conflict'`, "unsure": `false`, "first_sent_at": `null`, "last_sent_by": `null`}
	isFailed   = map[string]string{"status": `'failed'`, "unsure": `false`, "finished_at": `clock_timestamp()`, "result": `'{"id":""}'`}
	isFinished = map[string]string{"status": `'finished'`, "unsure": `false`, "finished_at": `clock_timestamp()`, "result": `'{"id":"pay_1"}'`}
	isUnbooked = map[string]string{"status": `'needs_review'`, "review_cause": `'not_booked'`, "external_id": `'pay_7'`, "result": `'{"id":"pay_7"}'`}
)

// acted runs an act that must not fail.
func acted(t *testing.T) func(Acted, error) Acted {
	t.Helper()
	return func(a Acted, err error) Acted {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if a.Message == "" || strings.Contains(a.Message, "%!") {
			t.Errorf("message %q", a.Message)
		}
		return a
	}
}

// expect compares an answer.
func (a Acted) expect(t *testing.T, out ActOutcome, status idemstore.Status, says string) Acted {
	t.Helper()
	if a.Outcome != out || a.Task.Status != status || !strings.Contains(a.Message, says) {
		t.Errorf("%s, the task is %s: %s; want %s, %s: …%s…", a.Outcome, a.Task.Status, a.Message, out, status, says)
	}
	return a
}
