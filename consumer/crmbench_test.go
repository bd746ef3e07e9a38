package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// pushJob is one event of a contact.
type pushJob struct {
	Contact string `json:"contact"`
	Event   string `json:"event"`
	Number  *int64 `json:"number,omitempty"`
	Time    string `json:"time,omitempty"`
}

// crmBench is a bench with the kind "crm.push". The provider's effects, in the order in which it made them, are the CRM.
type crmBench struct {
	*bench
	push Kind[pushJob, paid]
}

func newCRM(t *testing.T) *crmBench {
	t.Helper()
	b := &crmBench{bench: newBench(t)}
	b.exec(`create table public.pushed (key text primary key, source int, result text check (result <> 'refused'))`)
	b.push = crmKind(b.pay)
	b.kind.Name = b.push.Name // whose tasks are looked for
	return b
}

func crmKind(p *payProvider) Kind[pushJob, paid] {
	return Kind[pushJob, paid]{
		Name: "crm.push", Contract: Contract{Effect: "a contact in the CRM"}, Provider: Provider{Identity: "crm", KeyPrefix: "crm_"},
		Key:        func(j pushJob) (string, error) { return "crm_" + j.Contact + "_" + j.Event, nil },
		Entity:     func(j pushJob) (string, Version) { return j.Contact, Version{Number: j.Number, Time: j.Time} },
		ExternalID: func(r paid) string { return r.ID },
		Perform: func(ctx context.Context, a *Attempt[pushJob]) (paid, error) {
			return p.perform(ctx, &Attempt[payJob]{ProviderKey: a.ProviderKey, run: a.run})
		},
		Lookup: func(ctx context.Context, a *Attempt[pushJob]) (paid, Verdict, error) {
			return p.lookup(ctx, &Attempt[payJob]{ProviderKey: a.ProviderKey, ExternalID: a.ExternalID, run: a.run})
		},
		Commit: func(w *Writes, f Final[pushJob, paid]) error {
			w.Exec(`insert into public.pushed values ($1, $2, $3)`, f.Key, int(f.Source), f.Result.ID+f.Refused)
			return nil
		},
	}
}

// event publishes version n of the contact "c", as an event named "vN" plus suffix, and returns its key.
func (b *crmBench) event(n int64, suffix ...string) (key string) {
	b.t.Helper()
	return b.send(pushJob{Contact: "c", Event: fmt.Sprint("v", n) + strings.Join(suffix, ""), Number: &n})
}

func (b *crmBench) send(j pushJob) (key string) {
	b.t.Helper()
	body, err := json.Marshal(j)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.js.Publish(b.t.Context(), subject(b.push.Name), body); err != nil {
		b.t.Fatal(err)
	}
	return "crm_" + j.Contact + "_" + j.Event
}

// inCRM checks what the CRM took, in this order, and how many requests came.
func (b *crmBench) inCRM(requests int, keys ...string) {
	b.t.Helper()
	w, _, _ := b.pay.counts()
	if got := b.pay.inOrder(); !slices.Equal(got, keys) || w != requests {
		b.t.Errorf("the CRM took %v in %d requests, want %v in %d", got, w, keys, requests)
	}
}

// inOrder are the keys of the effects, in the order in which they were made.
func (p *payProvider) inOrder() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := func(key string) (n int) {
		_, _ = fmt.Sscanf(p.effects[key], "pay_%d", &n)
		return n
	}
	return slices.SortedFunc(maps.Keys(p.effects), func(x, y string) int { return number(x) - number(y) })
}

// skipped checks an event that was finished without being sent.
func (b *crmBench) skipped(key string) idemstore.Task {
	b.t.Helper()
	task := b.awaitStatus(key, idemstore.Finished)
	if string(task.Result) != `{"id":""}` || task.ExternalID != "" {
		b.t.Errorf("%s was skipped with %s, id %q", key, task.Result, task.ExternalID)
	}
	if got := b.commits(key); got != fmt.Sprint(int(Skipped), " ") {
		b.t.Errorf("%s: Commit saw %q", key, got)
	}
	if audit := b.auditOf(task.TaskID); !strings.Contains(audit, "finished: stale: this version or a newer one") {
		b.t.Errorf("%s: the audit says %q", key, audit)
	}
	return task
}

// commits is what Commit was given of a key.
func (b *crmBench) commits(key string) (out string) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select coalesce(string_agg(source || ' ' || result, ', '), '') from public.pushed where key = $1`,
		key).Scan(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) auditOf(task int64) string {
	b.t.Helper()
	events, err := b.store.Events(b.t.Context(), task)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s: %s", e.NewStatus, e.Reason))
	}
	return strings.Join(out, "; ")
}

// awaitHeld waits until an event was given back because of the order.
func (b *crmBench) awaitHeld(key string) idemstore.Task {
	b.t.Helper()
	return b.await(key, "held", func(t idemstore.Task) bool { return strings.Contains(t.LastError, "of the same entity") })
}

// applied is the version of the contact "c" that is known to be applied.
func (b *crmBench) applied() (out string) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select concat_ws(' ', version_number, version_time) from settle.entities
		where kind = $1 and entity = 'c'`, b.push.Name).Scan(&out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// overtaken lets version 8 of the contact be there, applied by a task of long ago.
func (b *crmBench) overtaken() {
	b.t.Helper()
	b.exec(`insert into settle.entities (kind, entity, version_number, applied_by) values ($1, 'c', 8, 0)
		on conflict (kind, entity) do update set version_number = 8, applied_by = 0`, b.push.Name)
}

// resolve decides about a task as a person does.
func (b *crmBench) resolve(task idemstore.Task, r Ruling) {
	b.t.Helper()
	o, err := NewOperator(b.pool, b.conf, b.push)
	if err != nil {
		b.t.Fatal(err)
	}
	acted, err := o.Resolve(b.t.Context(), task, ActOptions{Actor: "ann", Reason: "asked the CRM's people"}, r)
	if err != nil || acted.Outcome != OutcomeDone {
		b.t.Fatalf("resolve: %+v (%v)", acted, err)
	}
}
