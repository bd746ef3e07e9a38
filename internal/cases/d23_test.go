package cases

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// No transaction is open while the provider is asked: a pool of two connections carries twenty slow calls at once.
func TestD23NoTransactionDuringTheCall(t *testing.T) {
	t.Parallel()
	const latency, jobs = 2 * time.Second, 20
	s := newCalmStage(t)
	s.settings.Config.Slots = jobs
	s.faults(provider.Fault{DelayBefore: latency})
	waits := &poolWaits{}
	w := s.serve(referenceKinds, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.Tracer = 2, waits
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "1s"
	})
	all := make([]job, jobs)
	for i := range all {
		all[i] = charge(fmt.Sprint(i))
	}
	begin := time.Now()
	s.publish(all...)
	idle := 0
	rig.Eventually(t, soon, "all jobs are done", func() bool {
		var now, done int
		s.scan(`select count(*) filter (where application_name = $1 and state like 'idle in transaction%'),
			(select count(*) from settle.tasks where status = 'finished')
			from pg_stat_activity where datname = current_database()`, []any{workerName}, &now, &done)
		idle += now
		return done == jobs
	})
	if took := time.Since(begin); took > 4*latency { // two connections, held meanwhile, would carry them in ten rounds
		t.Errorf("%d calls of %s at once took %s", jobs, latency, took)
	}
	s.holds(all...)
	for _, j := range all {
		s.sent(j, 1, 1)
	}
	if idle > 0 {
		t.Errorf("seen idle in a transaction %d times", idle)
	}
	stat := w.pool.Stat()
	if mean := stat.EmptyAcquireWaitTime() / max(time.Duration(stat.EmptyAcquireCount()), 1); mean > latency/2 {
		t.Errorf("%d waits for a connection, %s on average", stat.EmptyAcquireCount(), mean)
	}
	t.Logf("%d waits for a connection; the longest took %s", stat.EmptyAcquireCount(), waits.longest())
}

// poolWaits keeps the longest time that anybody waited for a connection.
type poolWaits struct{ nanoseconds atomic.Int64 }

type acquireStart struct{}

func (p *poolWaits) longest() time.Duration { return time.Duration(p.nanoseconds.Load()) }

func (p *poolWaits) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return context.WithValue(ctx, acquireStart{}, time.Now())
}

func (p *poolWaits) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	start, _ := ctx.Value(acquireStart{}).(time.Time)
	took := int64(time.Since(start))
	for {
		longest := p.nanoseconds.Load()
		if took <= longest || p.nanoseconds.CompareAndSwap(longest, took) {
			return
		}
	}
}

// A pool takes its tracer from where it expects one of queries.
func (p *poolWaits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (p *poolWaits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
