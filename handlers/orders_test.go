package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// addOrder puts an order of 1200 EUR for c_17 into the shop.
func addOrder(t *testing.T, pool *pgxpool.Pool, status, chargeID string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `insert into shop.orders (order_id, customer_id, amount, currency, status, charge_id)
		values ('18452', 'c_17', 1200, 'EUR', $1, nullif($2, ''))`, status, chargeID)
	if err != nil {
		t.Fatal(err)
	}
}

func emptyShop(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `truncate shop.payments, shop.orders`); err != nil {
		t.Fatal(err)
	}
}

// shopSays is the shop's tables in words.
func shopSays(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var orders, payments string
	err := pool.QueryRow(t.Context(), `select
		(select coalesce(string_agg(format('%s %s %s %s %s %s', order_id, customer_id, amount, currency, status, coalesce(charge_id, '-')), ', '), 'no order') from shop.orders),
		(select coalesce(string_agg(format('%s %s %s %s %s', charge_id, order_id, amount, currency, task_id), ', '), 'no payment') from shop.payments)`).
		Scan(&orders, &payments)
	if err != nil {
		t.Fatal(err)
	}
	return orders + "; " + payments
}

func TestChargeCheck(t *testing.T) {
	paid := ChargeResult{ChargeID: "ch_0", Status: "succeeded"}
	pool := devtest.Pool(t)
	for _, c := range []struct {
		name     string
		status   string // of the order; empty: there is none
		create   bool
		job      func(*ChargeJob)
		want     string
		text     string
		result   ChargeResult
		paid     bool
		shopSays string
	}{
		{name: "unknown order", want: conflict, text: "order unknown", shopSays: "no order; no payment"},
		{name: "unknown order, created", create: true, want: done, shopSays: "18452 c_17 1200 EUR pending -; no payment"},
		{name: "pending", status: "pending", want: done},
		{name: "pending, nothing to create", status: "pending", create: true, want: done},
		{name: "the amount in other digits", status: "pending", job: func(j *ChargeJob) { j.Amount = "1200.00" }, want: done},
		{name: "declined before", status: "declined", want: done},
		{name: "another amount", status: "pending", job: func(j *ChargeJob) { j.Amount = "1200.01" }, want: conflict, text: "amount"},
		{name: "another currency", status: "pending", job: func(j *ChargeJob) { j.Currency = "USD" }, want: conflict, text: "currency"},
		{name: "another customer", status: "pending", job: func(j *ChargeJob) { j.CustomerID = "c_18" }, want: conflict, text: "customer"},
		{name: "another amount, not created anew", status: "pending", create: true, job: func(j *ChargeJob) { j.Amount = "1" }, want: conflict, text: "amount"},
		{name: "paid", status: "paid", want: done, paid: true, result: paid},
		{name: "paid, another amount", status: "paid", job: func(j *ChargeJob) { j.Amount = "1" }, want: conflict, text: "amount"},
		{name: "the largest exponent", status: "pending", job: func(j *ChargeJob) { j.Amount = "1e99" }, want: conflict, text: "amount"},
	} {
		t.Run(c.name, func(t *testing.T) {
			emptyShop(t, pool)
			if c.status != "" {
				addOrder(t, pool, c.status, map[bool]string{true: "ch_0"}[c.status == "paid"])
			}
			before := shopSays(t, pool)
			if c.shopSays != "" {
				before = c.shopSays
			}
			j := chargeJob()
			if c.job != nil {
				c.job(&j)
			}
			kind := Charge(client(t, ClientOptions{}), ChargeOptions{CreateOrders: c.create})
			result, paid, err := kind.Check(t.Context(), pool, j)
			class, _ := outcomeOf(err)
			if class != c.want || paid != c.paid || result != c.result {
				t.Errorf("%s, paid %v, %+v; error %v", class, paid, result, err)
			}
			if c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("error %v, want %q in it", err, c.text)
			}
			if got := shopSays(t, pool); got != before {
				t.Errorf("the shop says %s, want %s", got, before)
			}
		})
	}
}

// One new order, many jobs at once: nobody sees a missing row.
func TestChargeCheckCreatesOnce(t *testing.T) {
	pool := devtest.Pool(t)
	kind := Charge(client(t, ClientOptions{}), ChargeOptions{CreateOrders: true})
	var checks sync.WaitGroup
	for range 8 {
		checks.Go(func() {
			if _, paid, err := kind.Check(t.Context(), pool, chargeJob()); paid || err != nil {
				t.Errorf("paid %v, error %v", paid, err)
			}
		})
	}
	checks.Wait()
	if got, want := shopSays(t, pool), "18452 c_17 1200 EUR pending -; no payment"; got != want {
		t.Errorf("the shop says %s, want %s", got, want)
	}
}

// A broken database is no conflict: the job is tried again.
func TestChargeCheckWithoutDatabase(t *testing.T) {
	pool := devtest.Pool(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, create := range []bool{true, false} {
		_, paid, err := Charge(client(t, ClientOptions{}), ChargeOptions{CreateOrders: create}).Check(ctx, pool, chargeJob())
		if class, _ := outcomeOf(err); class != unknown || paid {
			t.Errorf("%s, paid %v: %v", class, paid, err)
		}
	}
}

// ledger runs queued statements at once, as a save would, and keeps the events.
type ledger struct {
	t      *testing.T
	tx     pgx.Tx
	events []string
}

func (l *ledger) Exec(sql string, args ...any) {
	if _, err := l.tx.Exec(l.t.Context(), sql, args...); err != nil {
		l.t.Errorf("%s: %v", sql, err)
	}
}

func (l *ledger) Emit(subject, key string, payload any) {
	body, err := json.Marshal(payload)
	if err != nil {
		l.t.Error(err)
	}
	l.events = append(l.events, fmt.Sprintf("%s %s %s", subject, key, body))
}

// book runs the kind's commit in a transaction and returns its events.
func book(t *testing.T, pool *pgxpool.Pool, f consumer.Final[ChargeJob, ChargeResult]) []string {
	t.Helper()
	l := &ledger{t: t}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		l.tx = tx
		bookCharge(l, f)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return l.events
}

func TestChargeCommit(t *testing.T) {
	const (
		charged = `events.payment.charged order_18452 {"order_id":"18452","charge_id":"ch_1","amount":1200,"currency":"EUR"}`
		booked  = "18452 c_17 1200 EUR paid ch_1; ch_1 18452 1200 EUR 7"
	)
	pool := devtest.Pool(t)
	refuse := func(f *consumer.Final[ChargeJob, ChargeResult]) { f.Refused = "card_declined" }
	for _, c := range []struct {
		name   string
		status string // of the order before; empty: there is none
		final  func(*consumer.Final[ChargeJob, ChargeResult])
		want   string
		event  string
	}{
		{"charged", "pending", nil, booked, charged},
		{"found by a look-up", "pending", func(f *consumer.Final[ChargeJob, ChargeResult]) { f.Source = consumer.LookedUp }, booked, charged},
		{"resolved by a person", "pending", func(f *consumer.Final[ChargeJob, ChargeResult]) { f.Source = consumer.Resolved }, booked, charged},
		{
			"resolved without a charge id", "pending",
			func(f *consumer.Final[ChargeJob, ChargeResult]) { f.Source, f.ExternalID = consumer.Resolved, "" },
			"18452 c_17 1200 EUR paid -; no payment", `events.payment.charged order_18452 {"order_id":"18452","charge_id":"","amount":1200,"currency":"EUR"}`,
		},
		{"charged after a decline", "declined", nil, booked, charged},
		{"charged, the order is gone", "", nil, booked, charged},
		{"charged, paid otherwise meanwhile", "paid", nil, "18452 c_17 1200 EUR paid ch_0; ch_1 18452 1200 EUR 7", charged},
		{"declined", "pending", refuse, "18452 c_17 1200 EUR declined -; no payment", ""},
		{"declined, the order is gone", "", refuse, "no order; no payment", ""},
		{"declined, paid otherwise meanwhile", "paid", refuse, "18452 c_17 1200 EUR paid ch_0; no payment", ""},
		{"was paid already", "paid", func(f *consumer.Final[ChargeJob, ChargeResult]) { f.Source = consumer.Checked }, "18452 c_17 1200 EUR paid ch_0; no payment", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			emptyShop(t, pool)
			if c.status != "" {
				addOrder(t, pool, c.status, map[bool]string{true: "ch_0"}[c.status == "paid"])
			}
			f := consumer.Final[ChargeJob, ChargeResult]{
				Job: chargeJob(), Key: "order_18452", TaskID: 7, Attempt: 1, ExternalID: "ch_1",
				Result: ChargeResult{ChargeID: "ch_1", Status: "succeeded"},
			}
			if c.final != nil {
				c.final(&f)
			}
			for range 2 { // it may run again
				events := book(t, pool, f)
				if len(events) > 1 || len(events) == 1 && events[0] != c.event || len(events) == 0 && c.event != "" {
					t.Errorf("events %q, want %q", events, c.event)
				}
				if got := shopSays(t, pool); got != c.want {
					t.Errorf("the shop says %s, want %s", got, c.want)
				}
			}
		})
	}
}
