// Command bench measures jobs per second of Settle's kinds beside a hand-written loop, in one run on one machine.
//
//	go run ./internal/bench                      three rounds of 20,000 jobs each
//	go run ./internal/bench -jobs 5000 -rounds 5
//	go run ./internal/bench -rounds 20 -only external,metrics
//	go run ./internal/bench -rounds 20 -only external,metrics,traced -collector http://127.0.0.1:4317
//
// Each round measures all contestants one after the other, each round beginning with the next one, so that a machine that
// slows down slows all of them. What telemetry costs is in the last columns, as ratios with their 95 % intervals over the
// rounds: of jobs per second, where 0.97 [0.95, 0.99] is an overhead of 3 %, and of 5 % at most; and of the processor time of a
// job, the collector's left out, which neighbours on the machine hardly change. make jaeger runs a collector. A
// real PostgreSQL with its default durability and a real JetStream (file store, one replica) are started for it. The
// jobs are queued first; then the clock runs from the first delivery to the last confirmed ack, or to the last confirmed
// event of jobs that emit one. Figures are for this
// machine; the ratios are what they are for.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
)

func main() {
	jobs := flag.Int("jobs", 20000, "jobs per measurement")
	rounds := flag.Int("rounds", 3, "rounds; each measures every contestant once")
	slots := flag.Int("slots", 256, "jobs performed at once")
	only := flag.String("only", "", "measure these only, the first of them being what others are compared with: loop, external, emitting, "+
		"local, metrics, traced; all but the last two")
	collector := flag.String("collector", "", "where the contestant traced sends every trace: the URL of an OTLP collector (gRPC)")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	if err := profiled(*profile, func() error {
		chosen, err := choose(*only, *collector)
		if err != nil {
			return err
		}
		return run(context.Background(), os.Stdout, *jobs, *rounds, *slots, chosen)
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// profiled runs f, with a CPU profile if there is a file for it.
func profiled(file string, f func() error) error {
	if file == "" {
		return f()
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// contestant does the same work in its own way: take all queued jobs, note each key once, ack.
type contestant struct {
	name string
	kind string
	run  func(context.Context, *stage) error // until every job is acked

	rates []float64 // jobs per second in each round
	costs []float64 // processor seconds of all processes in each round
	used  usage     // in all rounds
}

// all are the contestants by the name that -only takes.
func all(collector string) map[string]contestant {
	return map[string]contestant{
		"loop":     {name: "hand-written loop, 64 goroutines", kind: "bench.loop", run: loop},
		"external": {name: "external kind, no-op", kind: "bench.external", run: engine(external(), unseen)},
		"emitting": {name: "the same, with one event each", kind: "bench.emitting", run: engine(emitting(), unseen)},
		"local":    {name: "local kind, no-op", kind: "bench.local", run: engine(local(), unseen)},
		"metrics":  {name: "external kind with metrics", kind: "bench.external", run: engine(external(), withMetrics)},
		"traced":   {name: "external kind with metrics and traces", kind: "bench.external", run: engine(external(), withTraces(collector))},
	}
}

// choose gives the contestants that are asked for, in that order.
func choose(only, collector string) (chosen []contestant, err error) {
	known := all(collector)
	for name := range strings.SplitSeq(cmp.Or(only, "loop,external,emitting,local"), ",") {
		c, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("there is no contestant %q; there are %s", name, slices.Sorted(maps.Keys(known)))
		}
		if name == "traced" && collector == "" {
			return nil, errors.New("traced needs -collector")
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

func run(ctx context.Context, out io.Writer, jobs, rounds, slots int, contestants []contestant) error {
	s := &stage{jobs: jobs, slots: slots}
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	for round := range rounds {
		for i := range contestants {
			c := &contestants[(round+i)%len(contestants)]
			rate, used, err := s.measure(ctx, *c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rates, c.used = append(c.rates, rate), c.used.plus(used)
			c.costs = append(c.costs, (used.process + used.postgres).Seconds())
			fmt.Fprintf(os.Stderr, "round %d: %-34s %8.0f jobs/s\n", round+1, c.name, rate)
		}
	}
	return report(out, contestants, jobs*rounds)
}

// report prints a line for each contestant; each has done n jobs.
func report(out io.Writer, contestants []contestant, n int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "contestant\tjobs/s (median)\tmin\tmax\tper job:\t"+usageColumns+"\tjobs/s × first [95 %]\tprocessor × first [95 %]\t")
	for _, c := range contestants {
		first := contestants[0]
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t\t%s\t%s\t%s\t\n", c.name, median(c.rates), slices.Min(c.rates), slices.Max(c.rates),
			c.used.perJob(n), intervalOf(ratios(c.rates, first.rates)), intervalOf(ratios(c.costs, first.costs)))
	}
	return t.Flush()
}

// ratios are those of the rounds.
func ratios(of, to []float64) []float64 {
	out := make([]float64, len(of))
	for i := range of {
		out[i] = of[i] / to[i]
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// stage is the servers, shared by all measurements; each measurement gets a database and a stream of its own.
type stage struct {
	jobs, slots int
	postgres    *devenv.Postgres
	nats        *devenv.NATS
	conn        *nats.Conn
	js          jetstream.JetStream
	made        int

	url     string        // of the measurement's database
	pool    *pgxpool.Pool // of the measurement under way
	emptied time.Time     // when its last job was acked, and the last event confirmed
}

func (s *stage) open(ctx context.Context) (err error) {
	if s.postgres, err = devenv.StartPostgres(ctx, devenv.PostgresOptions{Durable: true}); err != nil {
		return err
	}
	if s.nats, err = devenv.StartNATS(devenv.NATSOptions{}); err != nil {
		return err
	}
	if s.conn, err = nats.Connect(s.nats.URL()); err != nil {
		return err
	}
	s.js, err = jetstream.New(s.conn)
	return err
}

func (s *stage) close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.nats != nil {
		_ = s.nats.Stop()
	}
	if s.postgres != nil {
		_ = s.postgres.Stop()
	}
}

// measure queues the jobs and runs a contestant until all are acked. It returns jobs per second, and what was used.
func (s *stage) measure(ctx context.Context, c contestant) (rate float64, used usage, err error) {
	if err := s.prepare(ctx, c.kind); err != nil {
		return 0, used, err
	}
	before, err := s.use(ctx)
	if err != nil {
		return 0, used, err
	}
	took, err := s.race(ctx, c)
	if err != nil {
		return 0, used, err
	}
	after, err := s.use(ctx)
	if err != nil {
		return 0, used, err
	}
	rows, err := s.finished(ctx)
	if err == nil && rows != s.jobs {
		err = fmt.Errorf("%d rows are finished, want %d", rows, s.jobs)
	}
	if err == nil {
		err = s.countEvents(ctx, c.kind)
	}
	return float64(s.jobs) / took.Seconds(), after.minus(before), err
}

// race runs a contestant and returns how long it took.
func (s *stage) race(ctx context.Context, c contestant) (took time.Duration, err error) {
	if s.pool, err = pgxpool.New(ctx, s.url+"&pool_max_conns=64"); err != nil {
		return 0, err
	}
	defer s.pool.Close()
	began := time.Now()
	err = c.run(ctx, s)
	return s.emptied.Sub(began), err
}

const engineCount = `select count(*) from settle.tasks where status = 'finished'`

// finished counts what a contestant has finished, in the engine's table or the loop's.
func (s *stage) finished(ctx context.Context) (rows int, err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select ("+handCount+") + ("+engineCount+")").Scan(&rows)
	return rows, err
}

// countEvents checks that a job that emits has left one event.
func (s *stage) countEvents(ctx context.Context, kind string) error {
	want := 0
	if kind == "bench.emitting" {
		want = s.jobs
	}
	stream, err := s.js.Stream(ctx, "EVENTS")
	if err != nil {
		return err
	}
	if n := stream.CachedInfo().State.Msgs; n != uint64(want) {
		return fmt.Errorf("%d events, want %d", n, want)
	}
	return nil
}

func (s *stage) prepare(ctx context.Context, kind string) error {
	s.made++
	var err error
	if s.url, err = s.postgres.CreateDatabase(ctx, fmt.Sprintf("bench_%d", s.made)); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := idemstore.Migrate(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, handTable); err != nil {
		return err
	}
	return s.queue(ctx, kind)
}

// queue makes the streams anew and fills that of the jobs.
func (s *stage) queue(ctx context.Context, kind string) error {
	for _, name := range []string{"JOBS", "EVENTS"} {
		_ = s.js.DeleteStream(ctx, name) // not there the first time
	}
	if err := consumer.EnsureStreams(ctx, s.js, consumer.Config{}); err != nil {
		return err
	}
	for i := range s.jobs {
		if _, err := s.js.PublishAsync("jobs."+kind, body(i), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%d publishes are not confirmed", s.js.PublishAsyncPending())
	}
}

// body is a payload of 256 bytes.
func body(i int) []byte { return fmt.Appendf(nil, `{"id":"k%07d","pad":"%0226d"}`, i, i) }

// awaitEmpty waits until the stream holds no message and the outbox no row: all were acked, and confirmed.
func (s *stage) awaitEmpty(ctx context.Context) error {
	for {
		stream, err := s.js.Stream(ctx, "JOBS")
		if err != nil {
			return err
		}
		waiting := true
		if stream.CachedInfo().State.Msgs == 0 {
			if err := s.pool.QueryRow(ctx, `select exists (select from settle.outbox)`).Scan(&waiting); err != nil {
				return err
			}
		}
		if !waiting {
			s.emptied = time.Now()
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var quiet = slog.New(slog.DiscardHandler)
