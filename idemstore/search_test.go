package idemstore_test

import (
	"context"
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

const (
	derivedKey = "s1-0123456789abcdef0123456789abcdef01234567"
	otherTrace = "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01"
	thirdTrace = "00-0000000000000000000000000000abcd-b7ad6b7169203331-01"
)

// searchable leaves tasks 1 to 5 in a database.
func searchable(t *testing.T) bench {
	t.Helper()
	b := newBench(t)
	for i, change := range []func(*idemstore.Claim){
		func(c *idemstore.Claim) { c.OriginTrace = trace },
		func(c *idemstore.Claim) { c.Key, c.OriginTrace = "Käse%_1", otherTrace },
		func(c *idemstore.Claim) { c.Kind, c.ProviderKey = "other.kind", derivedKey },
		func(c *idemstore.Claim) {
			c.Key = "4712"
			c.Refs = append(c.Refs, idemstore.Ref{Name: "order", Value: "1"})
		},
		func(c *idemstore.Claim) { c.Kind, c.Key = "a.kind", "with/slash" },
	} {
		c := claimOf("order_1")
		c.Refs = []idemstore.Ref{{Name: "customer", Value: "c_17"}}
		change(&c)
		b.expect(t, idemstore.Inserted, c)
		if n := query[int64](t, b.pool, `select max(id) from settle.tasks`); n != int64(i+1) {
			t.Fatalf("task %d has id %d", i+1, n)
		}
	}
	return b
}

func TestSearch(t *testing.T) {
	t.Parallel()
	b := searchable(t)
	for _, s := range []struct {
		idemstore.Fence
		id string
	}{{b.task(t, 1).Fence, "ch_1"}, {b.task(t, 2).Fence, "ch_2"}} {
		if err := b.SaveExternalID(t.Context(), s.Fence, s.id, thirdTrace); err != nil {
			t.Fatal(err)
		}
	}
	lost := b.task(t, 4).Fence
	lost.Attempt++
	_ = b.SaveExternalID(t.Context(), lost, "ch_late", thirdTrace) // leaves evidence and an audit line
	accepted := unknown(b.task(t, 5).Fence)
	accepted.ExternalID = "rep_5"
	b.save(t, accepted)

	for _, c := range []struct {
		name string
		idemstore.Search
		want string // id:what=value
	}{
		{"task id", idemstore.Search{Text: "3"}, "3:task=3"},
		{"key of two kinds", idemstore.Search{Text: "order_1"}, "3:key=order_1 1:key=order_1"},
		{"key of one kind", idemstore.Search{Text: "order_1", Kind: "other.kind"}, "3:key=order_1"},
		{"KIND/KEY", idemstore.Search{Text: "other.kind/order_1"}, "3:key=order_1"},
		{"KIND/KEY with a slash in it", idemstore.Search{Text: "a.kind/with/slash"}, "5:key=with/slash"},
		{"key with a slash in it", idemstore.Search{Text: "with/slash"}, "5:key=with/slash"},
		{"number that is a key and no id", idemstore.Search{Text: "4712"}, "4:key=4712"},
		{"id and search term", idemstore.Search{Text: "1"}, "1:task=1 4:order=1"},
		{"customer, newest first", idemstore.Search{Text: "c_17"}, "5:customer=c_17 4:customer=c_17 3:customer=c_17 2:customer=c_17 1:customer=c_17"},
		{"customer, some", idemstore.Search{Text: "c_17", Limit: 2}, "5:customer=c_17 4:customer=c_17"},
		{"customer, one kind", idemstore.Search{Text: "c_17", Kind: "a.kind"}, "5:customer=c_17"},
		{"external id", idemstore.Search{Text: "ch_2"}, "2:external_id=ch_2"},
		{"external id of what is not done", idemstore.Search{Text: "rep_5"}, "5:external_id=rep_5"},
		{"late proof", idemstore.Search{Text: "ch_late"}, "4:external_id=ch_late"},
		{"provider key", idemstore.Search{Text: derivedKey}, "3:provider_key=" + derivedKey},
		{"trace of a publisher and of an audit line", idemstore.Search{Text: "0af7651916cd43dd8448eb211c80319c"},
			"5:trace_id=0af7651916cd43dd8448eb211c80319c 1:trace_id=0af7651916cd43dd8448eb211c80319c"},
		{"traceparent in capitals", idemstore.Search{Text: strings.ToUpper(otherTrace)}, "2:trace_id=" + otherTrace[3:35]},
		{"trace of an audit line", idemstore.Search{Text: thirdTrace[3:35]}, "4:trace_id=" + thirdTrace[3:35]},
		{"nothing", idemstore.Search{Text: "nothing"}, ""},
		{"no text", idemstore.Search{}, ""},
		{"only the text counts, not a pattern", idemstore.Search{Text: "order%"}, ""},

		{"beginning of a key", idemstore.Search{Text: "ord"}, "1:key=order_1 3:key=order_1"},
		{"beginning of a key of one kind", idemstore.Search{Text: "ord", Kind: kind}, "1:key=order_1"},
		{"beginning of KIND/KEY", idemstore.Search{Text: "a.kind/with/"}, "5:key=with/slash"},
		{"beginning with what patterns are made of", idemstore.Search{Text: "Käse%_"}, "2:key=Käse%_1"},
		{"beginning of a letter of two bytes", idemstore.Search{Text: "Kä"}, "2:key=Käse%_1"},
		{"beginning of an external id", idemstore.Search{Text: "ch_"}, "1:external_id=ch_1 2:external_id=ch_2 4:external_id=ch_late"},
		{"beginning, some", idemstore.Search{Text: "ch_", Limit: 1}, "1:external_id=ch_1"},
		{"beginning of a provider key", idemstore.Search{Text: derivedKey[:8]}, "3:provider_key=" + derivedKey},
		{"long beginning of a provider key", idemstore.Search{Text: derivedKey[:40]}, "3:provider_key=" + derivedKey},
		{"wrong end of a provider key", idemstore.Search{Text: derivedKey[:39] + "x"}, ""},
		{"equal ones only", idemstore.Search{Text: "c_17", Limit: 1}, "5:customer=c_17"},
		{"equal ones and longer ones", idemstore.Search{Text: "ch_1", Prefix: true}, "1:external_id=ch_1"},
		{"no id", idemstore.Search{Text: "3", Prefix: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hits, err := b.Search(t.Context(), c.Search)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range hits {
				got = append(got, fmt.Sprintf("%d:%s=%s", h.TaskID, h.Matched, h.Value))
				if len(h.Payload) > 0 || h.Result != nil || h.Kind == "" {
					t.Errorf("a hit comes with %+v", h.Task)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// A receipt is younger than its charge, and still not what is meant by the order.
func TestSearchGivesTheEffectBeforeWhatFollows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, key := range []string{"order_1", "receipt_1"} {
		c := claimOf(key)
		c.Refs, c.OriginTrace = []idemstore.Ref{{Name: "order", Value: "1x"}}, otherTrace
		if key == "receipt_1" {
			c.Kind, c.Provider, c.ProviderKey = "receipt.send", "", ""
		}
		b.expect(t, idemstore.Inserted, c)
	}
	for _, text := range []string{"1x", otherTrace} {
		hits, err := b.Search(t.Context(), idemstore.Search{Text: text})
		if err != nil || len(hits) != 2 || hits[0].Key != "order_1" {
			t.Errorf("%s: %+v, %v", text, hits, err)
		}
	}
}

func TestBriefs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	short, long, archived := claimOf("short"), claimOf("long"), claimOf("archived")
	long.Payload = []byte(`"` + strings.Repeat("x", 4096) + `"`)
	for _, c := range []idemstore.Claim{short, long, archived} {
		b.expect(t, idemstore.Inserted, c)
	}
	s := finished(b.task(t, 1).Fence)
	s.Reason = "stale: newer"
	b.save(t, s)
	for _, sql := range []string{
		`insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason) values (1, 'ann', 1, 'finished', 'finished', 'a note')`,
		`insert into settle.tasks_archive (task_id, payload) values (3, '{"old":1}')`,
		`update settle.tasks set status = 'failed', finished_at = clock_timestamp(), lease_until = null, sending = false, payload = '', archived_at = clock_timestamp() where id = 3`,
	} {
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Briefs(t.Context(), []int64{1, 2, 3, 4})
	want := map[int64]idemstore.Brief{1: {Payload: short.Payload, Ended: "stale: newer"}, 2: {}, 3: {Payload: []byte(`{"old":1}`)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// manyTasks fills the tables without the engine.
func manyTasks(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	for _, sql := range []string{
		`insert into settle.tasks (kind, key, status, token, sending, give_up_at, payload, payload_hash, hash_algorithm,
			provider, provider_key, origin_trace, finished_at, external_id, expires_at)
		select case i % 20 when 0 then 'contact.sync' when 1 then 'report.create' else 'payment.charge' end, 'order_' || i, 'finished',
			gen_random_uuid(), false, now(), '{}', 'x', 'v1', 'p',
			case when i % 20 = 0 then 's1-' || substr(md5(i::text) || md5(i::text), 1, 40) else 'order_' || i end,
			'00-' || md5('t' || i) || '-b7ad6b7169203331-01', now(), 'ch_' || i, now() + interval '7 days'
		from generate_series(1, ` + fmt.Sprint(n) + `) i`,
		`insert into settle.task_refs (name, value, task_id)
		select 'external_id', external_id, id from settle.tasks
		union all select 'customer', 'c_' || id % 1000, id from settle.tasks
		union all select 'order', id::text, id from settle.tasks`,
		`insert into settle.task_events (task_id, actor, attempt, reason, trace_id)
		select id, 'worker', 1, 'taken over', md5('e' || id) from settle.tasks where id % 50 = 0`,
		`analyze settle.tasks, settle.task_refs, settle.task_events`,
	} {
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// boxes are texts of every sort, and none.
var boxes = []string{"17", "order_4711", "payment.charge/order_4711", "c_17", "ch_4711", "s1-cfcd208495d565ef66e7dff9f98764dacfcd2084",
	"5ce6c9d0cbd1a4a2ab8f1d4d8e1f7a2b", "order_47", "payment.charge/order_4", "ch_4", "s1-cfcd", "nothing at all"}

// A search looks things up: no part of it reads a whole table or index, however it is planned.
func TestSearchIsALookUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	manyTasks(t, b.pool, 20_000)
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), idemstore.PlanForKeys); err != nil {
		t.Fatal(err)
	}
	for i, text := range boxes {
		for _, s := range idemstore.SearchStatements(idemstore.Search{Text: text, Limit: 20}) {
			checkPlan(t, tx, fmt.Sprintf("%s%d", s.Name, i), s)
		}
	}
}

// checkPlan runs a statement under its generic plan. None of its steps may read a table from end to end, or more rows
// than a person would ever want to see.
func checkPlan(t *testing.T, tx pgx.Tx, name string, s idemstore.Planned) {
	t.Helper()
	var literals []string
	for _, a := range s.Args {
		literals = append(literals, literal(a))
	}
	if _, err := tx.Exec(t.Context(), `prepare `+name+` as `+s.SQL); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), `explain (analyze, costs off, timing off) execute `+name+`(`+strings.Join(literals, ", ")+`)`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	for _, m := range regexp.MustCompile(`rows=(\d+) loops|Rows Removed by \w+: (\d+)`).FindAllStringSubmatch(plan, -1) {
		if n := m[1] + m[2]; len(n) > 3 {
			t.Errorf("%s goes through %s rows", name, n)
		}
	}
	if strings.Contains(plan, "Seq Scan") || t.Failed() {
		t.Errorf("%s of %q:\n%s", name, s.Args[0], plan)
	}
}

// literal writes an argument into a statement.
func literal(a any) string {
	switch a := a.(type) {
	case *string:
		if a == nil {
			return "null"
		}
		return literal(*a)
	case *int64:
		if a == nil {
			return "null"
		}
		return fmt.Sprint(*a)
	case string:
		return "'" + strings.ReplaceAll(a, "'", "''") + "'"
	}
	return fmt.Sprint(a)
}

// The time of a search among a million tasks:
//
//	go test ./idemstore -run '^$' -bench Search -benchtime 5000x
func BenchmarkSearch(b *testing.B) {
	pool := devtest.Pool(b)
	manyTasks(b, pool, 1_000_000)
	store := idemstore.New(pool, time.Minute)
	var took []time.Duration
	for b.Loop() {
		n := 1 + rand.IntN(1_000_000)
		for _, text := range []string{fmt.Sprint(n), fmt.Sprint("order_", n), fmt.Sprint("c_", n%1000), fmt.Sprint("ch_", n),
			fmt.Sprintf("%x", md5.Sum(fmt.Append(nil, "t", n))), fmt.Sprintf("s1-%x", md5.Sum(fmt.Append(nil, n)))[:20], fmt.Sprint("order_", n)[:7]} {
			begin := time.Now()
			if hits, err := store.Search(b.Context(), idemstore.Search{Text: text}); err != nil || len(hits) == 0 && text[:2] != "s1" {
				b.Fatalf("%s: %d hits, %v", text, len(hits), err)
			}
			took = append(took, time.Since(begin))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}
