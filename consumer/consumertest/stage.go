package consumertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// soon bounds every wait: far more than anything takes, even on a loaded machine.
const soon = time.Minute

// stage is a database, a JetStream and a provider of one story.
type stage[J, R any] struct {
	t        *testing.T
	subject  Subject[J, R]
	provider Provider[J]
	front    *front
	pool     *pgxpool.Pool
	store    *idemstore.Store
	js       jetstream.JetStream
	natsURL  string

	mu       sync.Mutex
	verdicts []consumer.Verdict // of look-ups, oldest first
	refusals []commits          // what Commit did about refusals
	skips    []commits          // and about events that are out of date
	ungated  atomic.Bool        // a result came without a request at the send gate
}

func newStage[J, R any](t *testing.T, s Subject[J, R]) *stage[J, R] {
	t.Helper()
	x := &stage[J, R]{t: t, subject: s, provider: s.Provider().complete(), pool: devtest.Pool(t)}
	x.natsURL, x.js = devtest.JetStream(t)
	x.store = idemstore.New(x.pool, time.Second)
	x.front = newFront(x.provider.Handler, x.provider.IsLookup)
	t.Cleanup(x.front.server.Close)
	if s.Setup != nil {
		if err := s.Setup(t.Context(), x.pool); err != nil {
			t.Fatalf("consumertest: Setup: %v", err)
		}
	}
	if err := consumer.EnsureStreams(t.Context(), x.js, shortClocks()); err != nil {
		t.Fatal(err)
	}
	return x
}

func shortClocks() consumer.Config {
	return consumer.Config{Slots: 4, AckWait: time.Second, Lease: time.Second, DrainTimeout: time.Second, Breaker: -1,
		RecoverEvery: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
}

// kind is the subject's, made anew, with short clocks, and watched.
func (s *stage[J, R]) kind() consumer.Kind[J, R] {
	k := s.subject.Kind(s.front.server.URL)
	p := &k.Policy
	p.Deadline, p.BackoffMin, p.BackoffMax = 2*time.Second, 20*time.Millisecond, 200*time.Millisecond
	p.RetryAfterMax, p.MisconfiguredWait, p.MaxAge, p.MaxFailures = time.Second, time.Second, time.Hour, 20
	p.Retention = time.Nanosecond
	k.Provider.AbsentAfter = time.Second
	if lookup := k.Lookup; lookup != nil {
		k.Lookup = func(ctx context.Context, a *consumer.Attempt[J]) (R, consumer.Verdict, error) {
			r, v, err := lookup(ctx, a)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.verdicts = append(s.verdicts, consumer.CannotTell)
			} else {
				s.verdicts = append(s.verdicts, v)
			}
			return r, v, err
		}
	}
	if k.Commit != nil {
		k.Commit = s.watchCommit(k.Commit, k.Entity != nil)
	}
	return k
}

// said are the verdicts of the look-ups so far.
func (s *stage[J, R]) said() []consumer.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]consumer.Verdict(nil), s.verdicts...)
}

// process is an engine that can die.
type process struct {
	postgres *rig.PostgresProxy
	nats     *rig.NATSProxy
	stop     context.CancelFunc
}

// start starts a process. tune, if not nil, changes its kind.
func (s *stage[J, R]) start(tune func(*process, *consumer.Kind[J, R])) *process {
	s.t.Helper()
	p := &process{postgres: rig.NewPostgresProxy(s.t, s.pool.Config().ConnString()), nats: rig.NewNATSProxy(s.t, s.natsURL)}
	pool, err := pgxpool.New(s.t.Context(), p.postgres.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := nats.Connect(p.nats.URL(), nats.MaxReconnects(-1))
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	k := s.kind()
	if tune != nil {
		tune(p, &k)
	}
	c := shortClocks()
	c.Logger = slog.New(&listener{Handler: slog.DiscardHandler, heard: &s.ungated})
	e, err := consumer.New(pool, js, c, k)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	p.stop = stop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx)
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
		conn.Close()
		pool.Close()
	})
	return p
}

// listener hears the engine say that a kind does not pass the send gate.
type listener struct {
	slog.Handler
	heard *atomic.Bool
}

func (l *listener) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }
func (l *listener) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *listener) WithGroup(string) slog.Handler                    { return l }

func (l *listener) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "no request passed the send gate") {
		l.heard.Store(true)
	}
	return nil
}

// die ends the process as a kill would: nothing that it does from now on reaches Postgres or the broker.
func (p *process) die() {
	for _, x := range []*rig.Proxy{p.postgres.Proxy, p.nats.Proxy} {
		x.Refuse(true)
		x.Cut()
	}
	p.stop()
}

// publish adds a job to the stream, as a message that the stream takes for a new one.
func (s *stage[J, R]) publish(job J) string {
	s.t.Helper()
	k := s.kind()
	body, err := json.Marshal(job)
	if err != nil {
		s.t.Fatalf("the job cannot be published: %v", err)
	}
	return s.publishBody(k.Name, job, body)
}

func (s *stage[J, R]) publishBody(name string, job J, body []byte) string {
	s.t.Helper()
	if _, err := s.js.PublishMsg(s.t.Context(), &nats.Msg{Subject: "jobs." + name, Data: body}); err != nil {
		s.t.Fatalf("publish: %v", err)
	}
	key, err := s.kind().Key(job)
	if err != nil {
		s.t.Fatalf("the job has no key: %v", err)
	}
	return key
}

// settled waits until the task of a key is settled and the stream is empty.
func (s *stage[J, R]) settled(key string) idemstore.Task {
	s.t.Helper()
	return s.await(key, "settled, and its message gone", func(t idemstore.Task) bool {
		return t.Status != idemstore.Started && t.Status != idemstore.Unknown && s.stored() == 0
	})
}

func (s *stage[J, R]) await(key, what string, holds func(idemstore.Task) bool) (task idemstore.Task) {
	s.t.Helper()
	name := s.kind().Name
	came := poll(func() bool {
		var err error
		task, err = s.store.Find(s.t.Context(), name, key)
		if err != nil && !errors.Is(err, idemstore.ErrNotFound) {
			s.t.Fatal(err)
		}
		return err == nil && holds(task)
	})
	if !came {
		s.t.Fatalf("The job is not %s after %s: its task is %q after %d attempts. Last error: %s", what, soon, task.Status, task.Attempt, task.LastError)
	}
	return task
}

// poll waits until something holds, or until that took too long.
func poll(holds func() bool) bool {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for end := time.Now().Add(soon); !holds(); <-every.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// stored counts the messages in the stream.
func (s *stage[J, R]) stored() uint64 {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), "JOBS")
	if err != nil {
		s.t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

func (s *stage[J, R]) job() J { return s.subject.Jobs[0] }

// finished checks that the task is done and that its effect happened once.
func (s *stage[J, R]) finished(key string) {
	s.t.Helper()
	task := s.settled(key)
	s.once()
	k := s.kind()
	switch {
	case task.Status == idemstore.NeedsReview && k.Lookup == nil && k.Provider.Unkeyed:
		s.t.Log("The provider keeps no keys and cannot be asked, so a person has to decide. That is right, and a look-up would save them the work.")
	case task.Status == idemstore.Failed:
		s.t.Errorf("The effect happened and the task is failed (%s): in production the customer has paid and is told that it was declined. An error is "+
			"a refusal only if the provider said so.", task.LastError)
	case task.Status != idemstore.Finished:
		s.t.Errorf("The task is %s (%s), although the effect has happened: a person would have to settle each such job.", task.Status, task.LastError)
	case task.ExternalID == "":
		s.t.Error("The task has no external id: in production nobody could tell which of the provider's records belongs to it. Does ExternalID read the right member?")
	}
}

// once checks that the effect happened once.
func (s *stage[J, R]) once() {
	s.t.Helper()
	n := s.provider.Effects(s.job())
	if n == 1 {
		return
	}
	if n == 0 {
		s.t.Error("The job is settled and the effect never happened: in production it is lost without a word. Does Effects count it?")
		return
	}
	s.t.Errorf("The effect happened %d times: in production the customer is charged %d times. %s", n, n, s.why())
}

// why tells what the idempotency keys say about a repeated effect.
func (s *stage[J, R]) why() string {
	keys := s.front.sent()
	for _, k := range keys {
		if k != keys[0] {
			return fmt.Sprintf("The provider got the idempotency key %q and then %q: send Attempt.ProviderKey, which is the same in every attempt.", keys[0], k)
		}
	}
	if len(keys) > 0 && keys[0] == "" {
		return fmt.Sprintf("It was sent %d times without an Idempotency-Key: send Attempt.ProviderKey, or declare the provider Unkeyed and give the kind a look-up.", len(keys))
	}
	return fmt.Sprintf("It was sent %d times with the same key. Does the fake keep keys, and does the look-up find what exists?", len(keys))
}

// lost is a send whose effect happens and whose answer does not arrive.
func (s *stage[J, R]) lost(_ http.ResponseWriter, r *http.Request) {
	s.front.happen(r)
	hangUp()
}
