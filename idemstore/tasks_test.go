package idemstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func TestFind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	f := b.performing(t, "order_1")
	if task, err := b.Find(t.Context(), kind, "order_1"); err != nil || task.Fence != f {
		t.Errorf("found %+v (%v)", task.Fence, err)
	}
	for _, name := range [][2]string{{kind, "order_2"}, {"other", "order_1"}, {"", ""}} {
		if task, err := b.Find(t.Context(), name[0], name[1]); !errors.Is(err, idemstore.ErrNotFound) {
			t.Errorf("%q: found %d (%v), want ErrNotFound", name, task.TaskID, err)
		}
	}
	for _, id := range []int64{f.TaskID + 1, 0, -1} {
		if _, err := b.FindByID(t.Context(), id); !errors.Is(err, idemstore.ErrNotFound) {
			t.Errorf("%d: %v, want ErrNotFound", id, err)
		}
	}
}

// Paging by the last id sees every task once.
func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 7 {
		f := b.performing(t, fmt.Sprintf("order_%d", i))
		if i%2 == 0 {
			b.save(t, finished(f))
		}
	}
	c := claimOf("order_0")
	c.Kind = "other.kind"
	b.expect(t, idemstore.Inserted, c)
	for _, p := range []struct {
		filter idemstore.Filter
		want   string
	}{
		{idemstore.Filter{}, "order_0 order_1 order_2 order_3 order_4 order_5 order_6 order_0"},
		{idemstore.Filter{Kind: kind, Limit: 3}, "order_0 order_1 order_2 | order_3 order_4 order_5 | order_6"},
		{idemstore.Filter{Status: idemstore.Finished, Limit: 2}, "order_0 order_2 | order_4 order_6"},
		{idemstore.Filter{Kind: "other.kind", Status: idemstore.Started}, "order_0"},
		{idemstore.Filter{Kind: kind, Status: idemstore.NeedsReview}, ""},
		{idemstore.Filter{Kind: "none", Limit: -1}, ""},
	} {
		if got := pages(t, b, p.filter); got != p.want {
			t.Errorf("%+v lists %q, want %q", p.filter, got, p.want)
		}
	}
}

// pages lists the keys of all pages of a filter, with a bar between the pages.
func pages(t *testing.T, b bench, f idemstore.Filter) string {
	t.Helper()
	var all []string
	for {
		page, err := b.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return strings.Join(all, " | ")
		}
		var keys []string
		for _, task := range page {
			keys = append(keys, task.Key)
			f.AfterID = task.TaskID
		}
		all = append(all, strings.Join(keys, " "))
	}
}

func TestListWithoutLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var claims []idemstore.Claim
	for i := range 101 {
		claims = append(claims, claimOf(fmt.Sprint(i)))
	}
	if _, err := b.Claim(t.Context(), claims...); err != nil {
		t.Fatal(err)
	}
	if page, err := b.List(t.Context(), idemstore.Filter{}); err != nil || len(page) != 100 {
		t.Errorf("%d tasks (%v), want 100", len(page), err)
	}
}

// refusalOf is the refusal of a message with a body.
func refusalOf(body string) idemstore.Refusal {
	return idemstore.Refusal{Kind: kind, Key: "order_1", Reason: idemstore.Malformed, Detail: "unexpected end", Subject: "jobs.test.pay",
		Origin: idemstore.Origin{Stream: "JOBS", Sequence: 7, Stored: time.Unix(1_700_000_000, 123_456_789)},
		Body:   []byte(body), Headers: map[string][]string{"A": {"1", "2"}}}
}

// D-10, D-13: each message that is refused leaves one line, and a redelivery none.
func TestRefuse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.performing(t, "order_1").TaskID
	conflict := refusalOf("{")
	conflict.Reason, conflict.TaskID, conflict.Origin.Sequence = idemstore.Conflict, task, 8
	other := refusalOf("{{")
	again := refusalOf("{")
	again.Origin.Stored = time.Unix(1_800_000_000, 0) // the same sequence of a stream made anew
	for range 3 {
		if err := b.Refuse(t.Context(), refusalOf("{"), conflict, other, again); err != nil {
			t.Fatal(err)
		}
	}
	if n := query[int](t, b.pool, `select count(*) from settle.refusals`); n != 4 {
		t.Errorf("%d lines for four messages", n)
	}
	if n := query[int](t, b.pool, `select count(*) from settle.refusals where task_id = $1 and reason = 'conflict'`, task); n != 1 {
		t.Error("the conflict does not name its task")
	}
	if err := b.Refuse(t.Context()); err != nil {
		t.Errorf("nothing to refuse: %v", err)
	}
}

func TestRefusalIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, c := range []struct {
		name    string
		body    string
		kept    int
		cut     bool
		headers map[string][]string
		want    string
	}{
		{"no body, no headers", "", 0, false, nil, `null`},
		{"largest whole body", strings.Repeat("x", 64<<10), 64 << 10, false, map[string][]string{"A": {"1", "2"}}, `{"A":["1","2"]}`},
		{"body too large", strings.Repeat("x", 64<<10+1), 64 << 10, true, map[string][]string{"A": {strings.Repeat("x", 9000)}}, `{"too_large":9010}`},
		{"nothing a text column takes", "\x00\xff", 2, false, map[string][]string{"A\x00": {"\xff\x00"}}, `{"A\u0000":["\ufffd\u0000"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := refusalOf(c.body)
			r.Origin.Sequence, r.Headers = uint64(i), c.headers
			if c.body == "" {
				r.Body = nil // as a message without a body has it
			}
			if err := b.Refuse(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			var body []byte
			var size int
			var cut bool
			var headers string
			if err := b.pool.QueryRow(t.Context(), `select body, body_size, cut, headers from settle.refusals where sequence = $1`, i).
				Scan(&body, &size, &cut, &headers); err != nil {
				t.Fatal(err)
			}
			if len(body) != c.kept || !bytes.HasPrefix([]byte(c.body), body) || size != len(c.body) || cut != c.cut {
				t.Errorf("kept %d of %d bytes, cut %v", len(body), size, cut)
			}
			if headers != c.want {
				t.Errorf("headers %s, want %s", headers, c.want)
			}
		})
	}
}

func TestOwnPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	own := func(provider, prefix, kind string) error {
		return b.OwnPrefix(t.Context(), idemstore.Prefix{Provider: provider, Prefix: prefix, Kind: kind})
	}
	for _, c := range []struct {
		provider, prefix, kind string
		taken                  string // by this kind
	}{
		{"a", "order_", "charge", ""},
		{"a", "order_", "charge", ""},
		{"a", "order_refund_", "refund", "charge"},
		{"a", "ord", "other", "charge"},
		{"a", "order_", "other", "charge"},
		{"a", "order_refund_", "charge", ""}, // a kind does not clash with itself
		{"a", "order_refund_1", "refund", "charge"},
		{"b", "order_refund_", "refund", ""},
		{"a", "orders", "orders", ""},
		{"a", "Order_", "other", ""},
	} {
		rows := query[int](t, b.pool, `select count(*) from settle.key_prefixes`)
		err := own(c.provider, c.prefix, c.kind)
		if c.taken == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if !errors.Is(err, idemstore.ErrPrefixTaken) || !strings.Contains(err.Error(), "of kind "+c.taken) || !strings.Contains(err.Error(), "kind "+c.kind) {
			t.Errorf("%+v: %v, want ErrPrefixTaken that names both kinds", c, err)
		}
		if n := query[int](t, b.pool, `select count(*) from settle.key_prefixes`); n != rows {
			t.Errorf("%+v: a refusal left %d rows, were %d", c, n, rows)
		}
	}
}

// Two processes that start at the same time cannot both get clashing prefixes.
func TestOwnPrefixAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 10 {
		var got []<-chan result[string]
		for _, p := range []string{"order_", "order_refund_"} {
			got = append(got, async(func() (string, error) {
				return p, b.OwnPrefix(t.Context(), idemstore.Prefix{Provider: fmt.Sprint(i), Prefix: p, Kind: p})
			}))
		}
		one, other := <-got[0], <-got[1]
		if (one.err == nil) == (other.err == nil) || !errors.Is(errors.Join(one.err, other.err), idemstore.ErrPrefixTaken) {
			t.Fatalf("%v and %v, want one refusal", one.err, other.err)
		}
	}
}
