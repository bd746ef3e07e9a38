package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// A drain lets a local job that is under way come to its end.
func TestLocalDrainWaits(t *testing.T) {
	t.Parallel()
	for name, first := range onceOrLater {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.slowBroker()
			entered, serving := make(chan struct{}), make(chan *Engine, 1)
			b.inTurn(append(first, func(ctx context.Context, _ pgx.Tx, a *Attempt[payJob]) (paid, error) {
				close(entered)
				awaitDraining(<-serving)
				return paid{ID: fmt.Sprint("note of attempt ", a.Number)}, ctx.Err()
			})...)
			e, stop := b.start()
			serving <- e
			b.publish(plainJob)
			await(t, entered, "the job begins")
			stop()
			b.finishes(len(first)+1, len(first))
		})
	}
}

// One that does not end within the grace time is rolled back, costs nothing, and is done by the next process.
func TestLocalDrainCutsShort(t *testing.T) {
	t.Parallel()
	for name, first := range onceOrLater {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLocalBench(t)
			b.slowBroker()
			b.conf.DrainTimeout, b.conf.Policy.Deadline = 100*time.Millisecond, time.Hour
			entered, cause := make(chan struct{}), make(chan error, 1)
			b.inTurn(append(first, func(ctx context.Context, tx pgx.Tx, _ *Attempt[payJob]) (paid, error) {
				close(entered)
				_, err := tx.Exec(ctx, `select pg_sleep(60)`)
				cause <- context.Cause(ctx)
				return paid{}, err
			})...)
			_, stop := b.start()
			b.publish(plainJob)
			await(t, entered, "the job begins")
			stop()
			if err := await(t, cause, "the job is cut short"); !errors.Is(err, ErrDraining) {
				t.Errorf("cause %v", err)
			}
			task, there := b.find()
			if there != (len(first) > 0) || task.Failures != len(first) || task.LeaseUntil != nil || b.notes() != "" || b.messages() != 1 {
				t.Errorf("left: %v, %d failures, lease %v, notes %q, %d messages", there, task.Failures, task.LeaseUntil, b.notes(), b.messages())
			}
			b.start()
			b.finishes(1+2*len(first), len(first))
		})
	}
}

var onceOrLater = map[string][]apply{"first delivery": nil, "later": {failing(errors.New("again"))}}

// localWorker is a worker process for the note kind. It acts on itself at its points.
func localWorker(ctx context.Context) error {
	var s localSettings
	if err := json.Unmarshal([]byte(os.Getenv(localVariable)), &s); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := nats.Connect(s.NATS)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	s.Config.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rig.ChildPoints()))
	s.Config.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
	e, err := New(pool, js, s.Config, noteKind())
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

const localVariable = "SETTLE_LOCAL_WORKER"

// localSettings are what a worker process is told.
type localSettings struct {
	Database, NATS string
	Config         Config
}

// dies runs a worker process until it has killed itself between the job's rows and the commit.
func (b *localBench) dies() {
	b.t.Helper()
	s := localSettings{b.pool.Config().ConnString(), b.js.Conn().ConnectedUrl(), b.conf}
	s.Config.Logger = nil
	text, err := json.Marshal(s)
	if err != nil {
		b.t.Fatal(err)
	}
	w := rig.StartWorker(b.t, rig.WorkerOptions{Name: "local", Env: []string{localVariable + "=" + string(text)},
		Points: []rig.Point{{Span: spanApply, Edge: rig.End, Action: rig.Kill}}})
	if exit := w.Wait(30 * time.Second); !exit.Killed() {
		b.t.Fatalf("the worker ended with %s", exit)
	}
}

// D-02: a process that dies in a first delivery leaves nothing at all. One that dies later has left its claim, which
// costs a failure, and no rows.
func TestLocalProcessDies(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.publish(plainJob)
	b.dies()
	if task, there := b.find(); there || b.notes() != "" {
		t.Errorf("the first death left a task: %v %+v, notes %q", there, task, b.notes())
	}
	b.dies()
	if task, _ := b.find(); task.Status != idemstore.Started || task.Attempt != 1 || task.LeaseUntil == nil || b.notes() != "" {
		t.Errorf("the second death left: %s, attempt %d, lease %v, notes %q", task.Status, task.Attempt, task.LeaseUntil, b.notes())
	}
	b.start()
	b.finishes(2, 1)
}

// A job that kills its process each time ends with a person, not in a loop.
func TestLocalPoison(t *testing.T) {
	t.Parallel()
	b := newLocalBench(t)
	b.conf.AckWait, b.conf.Lease, b.conf.Policy.MaxFailures = time.Second, time.Second, 2
	b.publish(plainJob)
	for range 3 { // the first leaves nothing, the next two use up the budget
		b.dies()
	}
	b.start()
	task := b.awaitStatus("pay_1", idemstore.NeedsReview)
	b.awaitSettled()
	if task.Failures != 2 || b.notes() != "" {
		t.Errorf("%d failures, notes %q", task.Failures, b.notes())
	}
}
