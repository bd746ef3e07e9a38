package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// adversary is a provider that keeps its word about keys, and otherwise does what it can: it answers late, not at all,
// wrongly or with another status, and its look-ups by key lag behind. Each key is either paid or declined, for good.
type adversary struct {
	server  *httptest.Server
	client  *http.Client
	unkeyed bool        // each request makes an effect
	tame    atomic.Bool // honest from now on

	mu      sync.Mutex
	random  *rand.Rand
	effects map[string][]string // ids by key
	refusal map[string]string   // key to the id of its refusal
	polls   map[string]int      // that an accepted one is still pending for
}

func newAdversary(t *testing.T, seed uint64, unkeyed bool) *adversary {
	p := &adversary{unkeyed: unkeyed, random: rand.New(rand.NewPCG(seed, 1)), effects: map[string][]string{},
		refusal: map[string]string{}, polls: map[string]int{}, client: &http.Client{Transport: &Transport{}}}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() { p.client.CloseIdleConnections(); p.server.Close() })
	return p
}

// roll is a number below n; always 0 once the provider is tame.
func (p *adversary) roll(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tame.Load() {
		return 0
	}
	return p.random.IntN(n)
}

// dawdle waits a moment, whether or not the client still does.
func (p *adversary) dawdle() { <-time.After(time.Duration(p.roll(700)) * time.Millisecond) }

func (p *adversary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		p.lookup(w, key, r.URL.Query().Get("id"))
		return
	}
	before := []int{http.StatusTooManyRequests, http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusInternalServerError}
	n := p.roll(14)
	if n > 0 && n <= len(before) {
		w.WriteHeader(before[n-1])
		return
	}
	if n == 6 {
		noAnswer(w, r)
		return
	}
	if n >= 12 {
		p.dawdle()
	}
	p.effect(key, n == 7)
	switch n {
	case 8:
		noAnswer(w, r)
		return
	case 9:
		w.WriteHeader(http.StatusBadGateway)
		return
	case 10, 12:
		p.dawdle()
	}
	p.answer(w, key, "")
}

// effect makes the effect of a key, or its refusal.
func (p *adversary) effect(key string, pending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unkeyed && p.known(key) {
		return
	}
	switch {
	case key[len(key)-1] == '7':
		p.refusal[key] = "no_" + key
	default:
		p.effects[key] = append(p.effects[key], fmt.Sprintf("id_%s_%d", key, len(p.effects[key])+1))
	}
	if pending {
		p.polls[key] = 2
	}
}

func (p *adversary) known(key string) bool { return len(p.effects[key]) > 0 || p.refusal[key] != "" }

// answer tells of the effect with an id, or of the latest.
func (p *adversary) answer(w http.ResponseWriter, key, id string) {
	p.mu.Lock()
	made, no, pending := p.effects[key], p.refusal[key], p.polls[key] > 0
	p.mu.Unlock()
	switch {
	case no != "":
		w.WriteHeader(http.StatusPaymentRequired)
		id = no
	case pending:
		w.WriteHeader(http.StatusAccepted)
	}
	if id == "" {
		id = made[len(made)-1]
	}
	_ = json.NewEncoder(w).Encode(paid{ID: id})
}

func (p *adversary) lookup(w http.ResponseWriter, key, id string) {
	p.mu.Lock()
	known := p.known(key)
	p.polls[key]--
	p.mu.Unlock()
	switch n := p.roll(8); {
	case n == 1:
		w.WriteHeader(http.StatusInternalServerError)
	case n == 2:
		noAnswer(w, nil)
	case !known, n >= 5 && id == "" && !p.unkeyed: // without keys nobody may resend if look-ups cannot be believed
		w.WriteHeader(http.StatusNotFound)
	default:
		p.answer(w, key, id)
	}
}

// kind is of jobs at this provider. Some of its handlers do not hear that they lost their task, and bring proof.
func (p *adversary) kind() Kind[payJob, paid] {
	usual := &payProvider{server: p.server, client: p.client, poll: 20 * time.Millisecond}
	k := usual.kind()
	k.Perform = func(ctx context.Context, a *Attempt[payJob]) (paid, error) {
		if p.roll(2) == 1 {
			ctx = context.WithoutCancel(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		out, err := usual.perform(ctx, a)
		if classOf(err) == classConflict {
			err = InProgress(err)
		}
		return out, err
	}
	k.Commit = func(w *Writes, f Final[payJob, paid]) error {
		w.Exec(`insert into public.ledger values ($1, $2, $3)`, f.Key, f.ExternalID, f.Refused != "")
		return nil
	}
	k.Policy = Policy{Deadline: time.Second, MaxFailures: 8, BackoffMin: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
		MisconfiguredWait: 50 * time.Millisecond}
	k.Provider.Unkeyed, k.Provider.AbsentAfter = p.unkeyed, 1500*time.Millisecond
	return k
}

// meddling is what happens to rows under the hands of the workers: leases that run out early, and people who take a task
// from its attempt, retry one that is parked, or make one due. Each returns the key that it touched.
var meddling = func() (out []string) {
	const retried = `attempts = attempts + 1, token = gen_random_uuid(), status = 'unknown', unsure = true, failures = 0, review_cause = null,
		next_attempt_at = clock_timestamp()`
	for _, m := range []struct{ set, where string }{
		{`lease_until = clock_timestamp()`, `lease_until is not null`},
		{`lease_until = clock_timestamp()`, `lease_until is not null and sending`},
		{retried + `, last_sent_by = greatest(last_sent_by, lease_until), lease_until = null, sending = false`, `lease_until is not null and sending`},
		{retried, `status = 'needs_review' and unsure`},
		{`next_attempt_at = clock_timestamp()`, `status in ('started', 'unknown') and lease_until is null`},
	} {
		out = append(out, `update settle.tasks set `+m.set+` where id = (select id from settle.tasks where `+m.where+
			` order by random() limit 1) and `+m.where+` returning key`)
	}
	return out
}()

// neverAgain refuses what no statement may ever do to a row.
const neverAgain = `create function public.never_again() returns trigger language plpgsql as $$ begin
	if new.attempts < old.attempts or old.status = 'finished' and new.status <> 'finished'
		or old.external_id is not null and new.external_id is distinct from old.external_id then
		raise exception 'a row went back: % to %', to_jsonb(old), to_jsonb(new);
	end if;
	return new;
end $$;
create trigger never_again before update on settle.tasks for each row execute function public.never_again()`

// Two workers, a provider that answers as badly as it can, and people who meddle with rows at work. Whatever the order
// of things, no key has two effects, no outcome is made up, and nothing is left behind.
func TestAdversary(t *testing.T) {
	t.Parallel()
	for name, unkeyed := range map[string]bool{"keys": false, "no keys": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			b := newBench(t)
			p := newAdversary(t, seed, unkeyed)
			b.exec(`create table public.ledger (key text primary key, id text, refused boolean)`)
			b.exec(neverAgain)
			b.kind = p.kind()
			b.conf.AckWait, b.conf.Lease, b.conf.Slots = time.Second, time.Second, 24
			b.run()
			b.run()
			const keys = 100
			b.meddle(rand.New(rand.NewPCG(seed, 2)), keys)
			p.tame.Store(true)
			b.exec(`update settle.tasks set attempts = attempts + 1, token = gen_random_uuid(), status = 'unknown', unsure = true, failures = 0,
				review_cause = null, next_attempt_at = clock_timestamp() where review_cause = 'budget'`)
			for i := range keys {
				b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
			}
			b.awaitSettled()
			b.judged(p, keys)
		})
	}
}

// meddle publishes the jobs, and now and then changes a row and sends its message again.
func (b *bench) meddle(random *rand.Rand, keys int) {
	b.t.Helper()
	for i := range keys {
		b.publish(fmt.Sprintf(`{"order":"%d"}`, i))
		for range 3 {
			var key string
			err := b.pool.QueryRow(b.t.Context(), meddling[random.IntN(len(meddling))]).Scan(&key)
			switch {
			case err == nil:
				b.publish(fmt.Sprintf(`{"order":%q}`, key[len("pay_"):]))
			case !errors.Is(err, pgx.ErrNoRows):
				b.t.Fatal(err)
			}
		}
		eventually(b.t, 200*time.Millisecond, func() bool { return b.open() < 40 })
	}
}

// open counts the tasks that are neither final nor parked.
func (b *bench) open() (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `select count(*) from settle.tasks where status in ('started', 'unknown')`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// judged compares what the rows say with what the provider did.
func (b *bench) judged(p *adversary, keys int) {
	b.t.Helper()
	tasks, err := b.store.List(b.t.Context(), idemstore.Filter{Limit: keys + 1})
	if err != nil || len(tasks) != keys || b.open() != 0 {
		b.t.Errorf("%d tasks, %d of them open (%v)", len(tasks), b.open(), err)
	}
	final := 0
	for _, task := range tasks {
		made, no := p.effects[task.Key], p.refusal[task.Key]
		if task.Status.Final() {
			final++
		}
		switch {
		case len(made) > 1:
		case task.Status == idemstore.Finished && slices.Equal(made, []string{task.ExternalID}):
			continue
		case task.Status == idemstore.Failed && len(made) == 0 && no != "" && task.ExternalID == no:
			continue
		case task.Status == idemstore.NeedsReview && p.unkeyed && task.Cause == idemstore.CauseAbsent && len(made) == 0 && no == "":
			continue
		}
		b.t.Errorf("%s is %s (%s) with id %q, evidence %q, error %q; the provider has %q, refused %q", task.Key, task.Status, task.Cause,
			task.ExternalID, task.EvidenceID, task.LastError, made, no)
	}
	var booked int
	if err := b.pool.QueryRow(b.t.Context(), `select count(*) from public.ledger`).Scan(&booked); err != nil || booked != final {
		b.t.Errorf("%d of %d outcomes are booked (%v)", booked, final, err)
	}
}
