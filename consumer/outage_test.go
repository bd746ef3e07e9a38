package consumer

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// D-05: a database that refuses claims costs naks with a growing delay, and neither attempts nor failures.
func TestClaimsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	heard := b.listen()
	b.exec(`alter table settle.tasks rename to tasks_away`)
	began := time.Now()
	b.run()
	b.publish(plainJob)
	const naks = 4
	if !eventually(t, 20*time.Second, func() bool { return len(heard.about(1)) >= naks }) {
		t.Fatalf("heard %v", heard.about(1))
	}
	least := (naks - 1) * b.conf.Policy.BackoffMin
	if took := time.Since(began); took < least {
		t.Errorf("%d naks in %v, want at least %v between them", naks, took, least)
	}
	b.exec(`alter table settle.tasks_away rename to tasks`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("attempt %d, failures %d", task.Attempt, task.Failures)
	}
	if w, e, _ := b.pay.counts(); w != 1 || e != 1 {
		t.Errorf("W=%d E=%d", w, e)
	}
}

// A message that cannot be kept as a refusal is not terminated: it would be lost.
func TestRefusalsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	heard := b.listen()
	b.exec(`alter table settle.refusals rename to refusals_away`)
	b.run()
	b.publish(`{"order":`)
	if !eventually(t, 20*time.Second, func() bool { return len(heard.about(1)) >= 2 }) {
		t.Fatalf("heard %v", heard.about(1))
	}
	for _, verb := range heard.about(1) {
		if verb != "nak" {
			t.Errorf("heard %v without a refusal line", heard.about(1))
		}
	}
	b.exec(`alter table settle.refusals_away rename to refusals`)
	b.awaitSettled()
	var n int
	if err := b.pool.QueryRow(t.Context(), `select count(*) from settle.refusals`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d refusal lines (%v)", n, err)
	}
}

// A save that the database refuses for a while is repeated; the effect is not.
func TestSavesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.conf.Lease, b.conf.AckWait = 20*time.Second, 20*time.Second
	b.exec(`create sequence public.tries`) // its numbers stay when a transaction is rolled back
	b.exec(`create function public.refuse() returns trigger language plpgsql as
		$$ begin perform nextval('public.tries'); raise exception 'not now' using errcode = 'XX000'; end $$`)
	b.exec(`create trigger refuse before insert on settle.task_refs execute function public.refuse()`) // a save's search terms
	b.run()
	b.publish(plainJob)
	if !eventually(t, 20*time.Second, func() bool { return b.tries() >= 2 }) {
		t.Fatalf("%d saves were tried", b.tries())
	}
	b.exec(`drop trigger refuse on settle.task_refs`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if w, e, _ := b.pay.counts(); w != 1 || e != 1 || task.Attempt != 1 || task.Failures != 0 {
		t.Errorf("W=%d E=%d attempt %d failures %d", w, e, task.Attempt, task.Failures)
	}
}

func (b *bench) tries() (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select case when is_called then last_value else 0 end from public.tries`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}
