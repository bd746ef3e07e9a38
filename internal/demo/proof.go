package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
)

// provided counts what the provider really did, from its own tables, by order id or task id. It counts by the
// business's id and not by the idempotency key: a new key for the same order would hide a second charge.
const provided = `
select 'payment.charge', order_id, count(*)::int from provider.charges where status = 'succeeded' group by order_id
union all
select 'report.create', task_id::text, count(*)::int from provider.reports group by task_id`

// effectOf is one job as the provider knows it, or as its local rows do.
type effectOf struct{ kind, id string }

func (s *stage) effects(ctx context.Context) (map[effectOf]int, error) {
	out := map[effectOf]int{}
	for sql, pool := range map[string]*pgxpool.Pool{provided: s.provided, recorded: s.tasks} {
		rows, err := pool.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		var (
			of effectOf
			n  int
		)
		if _, err := pgx.ForEachRow(rows, []any{&of.kind, &of.id, &n}, func() error { out[of] = n; return nil }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fault is one broken promise.
type fault struct{ key, what string }

func (f fault) String() string { return f.key + " " + f.what }

// prove checks the claim of the run: one effect per key, nothing lost, nothing pending, one event and one receipt for each
// charge, each contact as its newest event says. It reads the provider's tables, the task rows, the local rows and the
// stream of events.
func (s *stage) prove(ctx context.Context, jobs []job) (faults []fault, err error) {
	done, err := s.effects(ctx)
	if err != nil {
		return nil, err
	}
	tasks, err := s.allTasks(ctx)
	if err != nil {
		return nil, err
	}
	links, err := s.chains(ctx, done)
	if err != nil {
		return nil, err
	}
	faults = brokenChains(links)
	for _, j := range jobs {
		if what := wrong(j, done[effectOf{j.kind, j.id}], tasks[j.key]); what != "" {
			faults = append(faults, fault{j.key, what})
		}
		delete(done, effectOf{j.kind, j.id})
	}
	for of := range done {
		faults = append(faults, fault{of.kind + " " + of.id, "was never asked for"})
	}
	left, err := s.unbooked(ctx)
	if err != nil {
		return nil, err
	}
	for _, order := range left {
		faults = append(faults, fault{"order_" + order, "was charged and is not booked exactly once as paid"})
	}
	old, err := s.contactFaults(ctx, jobs)
	if err != nil {
		return nil, err
	}
	faults = append(faults, old...)
	slices.SortFunc(faults, func(a, b fault) int { return strings.Compare(a.key, b.key) })
	return faults, nil
}

// wrong says what is wrong with one job; empty: nothing.
func wrong(j job, effects int, t idemstore.Task) string {
	noun := map[string]string{chargeKind: "charged", reportKind: "created", contactKind: "recorded"}[j.kind]
	switch {
	case effects > 1:
		return fmt.Sprintf("was %s %d times", noun, effects)
	case t.Status == idemstore.Finished && effects == 0:
		return "is called finished, and was never " + noun
	case t.Status == "" || t.Status == idemstore.Started || t.Status == idemstore.Unknown:
		return fmt.Sprintf("was lost: it never finished (status %q, %d effects)", t.Status, effects)
	case t.Status != idemstore.Finished:
		return fmt.Sprintf("ended %s, not finished", t.Status)
	}
	return ""
}

// unbooked are orders whose local rows do not say "paid, once".
func (s *stage) unbooked(ctx context.Context) ([]string, error) {
	rows, err := s.tasks.Query(ctx, `
select o.order_id from shop.orders o left join shop.payments p using (order_id)
where o.status = 'paid' or p.order_id is not null
group by o.order_id, o.status having count(p.charge_id) <> 1 or o.status <> 'paid'`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// allTasks are the tasks of the run by key.
func (s *stage) allTasks(ctx context.Context) (map[string]idemstore.Task, error) {
	out := map[string]idemstore.Task{}
	for after := int64(0); ; {
		page, err := s.store.List(ctx, idemstore.Filter{AfterID: after, Limit: 1000})
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, t := range page {
			out[t.Key] = t
			after = t.TaskID
		}
	}
}

// waiting is how many messages the stream still holds.
func (s *stage) waiting(ctx context.Context) (uint64, error) {
	stream, err := s.js.Stream(ctx, "JOBS")
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.Msgs, nil
}
