package cases

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 60 * time.Second

func TestMain(m *testing.M) {
	rig.Register("worker", worker(referenceKinds))
	rig.Register("chain", worker(chainKinds))
	rig.Register("declared", worker(declaredKinds))
	rig.Register("caller", caller)
	rig.Register("misbehaving", worker(misbehavingKinds))
	rig.Register("importing", worker(importingKinds))
	rig.RunChild()
	// The tests wait for leases most of the time; two at once, the default on a small machine, would be a queue.
	_ = flag.Set("test.parallel", "8") // -parallel on the command line still wins
	devtest.Main(m)
}

// stage is a database of its own, a JetStream of its own and a provider, for the workers of one test.
type stage struct {
	t        *testing.T
	pool     *pgxpool.Pool // the test's and the provider's; workers have their own
	tasks    *pgxpool.Pool // the database of the tasks, which is the same unless the workers are apart
	store    *idemstore.Store
	js       jetstream.JetStream
	natsURL  string
	provider *provider.Server
	// settings are those of the next worker, and name is its program. A test changes them before startWorker.
	settings settings
	name     string // "worker"

	mu    sync.Mutex
	traps []trap
}

// newStage makes a stage whose workers have short clocks: lease and AckWait 1 s, back-offs of 20 to 200 ms.
func newStage(t *testing.T) *stage {
	t.Helper()
	url, js := devtest.JetStream(t)
	return newStageAt(t, url, js, 1)
}

// newCalmStage is newStage for tests in which nobody dies and all deliveries count: a pause of a slow machine neither ends a
// lease nor brings a message back.
func newCalmStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.settings.Config.Lease, s.settings.Config.AckWait = 5*time.Second, 5*time.Second
	return s
}

// newStageAt is newStage with a broker that the test has, for streams with so many replicas.
func newStageAt(t *testing.T, natsURL string, js jetstream.JetStream, replicas int) *stage {
	t.Helper()
	s := &stage{t: t, pool: devtest.Pool(t), name: "worker", natsURL: natsURL, js: js}
	s.tasks, s.store = s.pool, idemstore.New(s.pool, time.Second)
	s.settings = settings{
		DatabaseURL: s.pool.Config().ConnString(), NATSURL: s.natsURL, ProviderURL: s.startProvider(),
		Config: consumer.Config{
			Slots: 4, AckWait: time.Second, Lease: time.Second, DrainTimeout: 10 * time.Second, Replicas: replicas,
			NoRecovery: true, // most tests are about what becomes of messages; see recovering
			Policy:     consumer.Policy{Deadline: 10 * time.Second, BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond},
		},
	}
	if err := consumer.EnsureStreams(t.Context(), s.js, s.settings.Config); err != nil {
		t.Fatal(err)
	}
	return s
}

// startProvider serves until the end of the test.
func (s *stage) startProvider() (url string) {
	s.t.Helper()
	s.provider = provider.New(s.pool, provider.Options{OnPoint: s.onPoint, Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	url, err := s.provider.Listen("127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		if err := s.provider.Run(ctx); err != nil {
			s.t.Errorf("provider: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); s.provider.Close(); running.Wait() })
	return url
}

// throughPostgres puts a proxy before the database of the workers that are started from now on.
func (s *stage) throughPostgres() *rig.PostgresProxy {
	p := rig.NewPostgresProxy(s.t, s.settings.DatabaseURL)
	s.settings.DatabaseURL = p.URL()
	return p
}

// throughNATS puts a proxy before the broker of the workers that are started from now on.
func (s *stage) throughNATS() *rig.NATSProxy {
	p := rig.NewNATSProxy(s.t, s.natsURL)
	s.settings.NATSURL = p.URL()
	return p
}

// startWorker starts a process that serves both kinds. It acts on itself at the points.
func (s *stage) startWorker(points ...rig.Point) *rig.Worker {
	s.t.Helper()
	return s.start(rig.WorkerOptions{Name: s.name, Points: points})
}

func (s *stage) start(o rig.WorkerOptions) *rig.Worker {
	s.t.Helper()
	o.Env = append(o.Env, s.settings.environment())
	return rig.StartWorker(s.t, o)
}

// trap is what a test does to the next effect request that comes to a point of the provider.
type trap struct {
	at     provider.Point
	by     func() int // the process whose requests count; nil: all
	do     func(context.Context)
	sprung chan struct{}
}

// at does something once, when the next POST comes to a point of the provider. The request stands still until it
// is done; the channel is closed then. ctx ends with the test.
func (s *stage) at(p provider.Point, do func(ctx context.Context)) (sprung <-chan struct{}) {
	return s.atBy(nil, p, do)
}

// atBy is at for the requests of one process.
func (s *stage) atBy(by func() int, p provider.Point, do func(ctx context.Context)) (sprung <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := trap{p, by, do, make(chan struct{})}
	s.traps = append(s.traps, x)
	return x.sprung
}

// hold stops the next POST at a point of the provider, until the test releases it or ends.
func (s *stage) hold(p provider.Point) (reached <-chan struct{}, release func()) {
	there, gone := make(chan struct{}), make(chan struct{})
	s.at(p, func(ctx context.Context) {
		close(there)
		select {
		case <-gone:
		case <-ctx.Done():
		}
	})
	return there, sync.OnceFunc(func() { close(gone) })
}

func (s *stage) onPoint(ctx context.Context, at provider.Point, call provider.Call) {
	if call.Method != http.MethodPost {
		return
	}
	if x, ok := s.take(at, call.UserAgent); ok {
		x.do(ctx)
		close(x.sprung)
	}
}

func (s *stage) take(at provider.Point, agent string) (x trap, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.traps {
		if x.at == at && (x.by == nil || strings.Contains(agent, fmt.Sprintf("(pid %d)", x.by()))) {
			s.traps = append(s.traps[:i:i], s.traps[i+1:]...)
			return x, true
		}
	}
	return x, false
}

// job is a message with what becomes of it.
type job struct{ kind, key, body string }

// charge is a job of payment.charge.
func charge(order string) job {
	return job{chargeKind, "order_" + order, fmt.Sprintf(`{"order_id":%q,"customer_id":"c_1","amount":1200,"currency":"EUR"}`, order)}
}

// report is a job of report.create.
func report(task int) job {
	return job{reportKind, fmt.Sprint("report-task-", task), fmt.Sprintf(`{"task_id":%d,"report_type":"monthly"}`, task)}
}

// publish adds each job to the stream, as a message of its own: without a message id nothing is deduplicated.
func (s *stage) publish(jobs ...job) (last uint64) {
	s.t.Helper()
	for _, j := range jobs {
		answer, err := s.js.PublishMsg(s.t.Context(), &nats.Msg{Subject: "jobs." + j.kind, Data: []byte(j.body)})
		if err != nil {
			s.t.Fatalf("publish: %v", err)
		}
		last = answer.Sequence
	}
	return last
}
