package idemstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Search is one text, which may be any of: the id of a task, a key, KIND/KEY, a provider key, an external id, another
// search term of a task (customer, order), a trace id or a whole traceparent.
type Search struct {
	Text   string
	Kind   string // only tasks of this kind; empty: of all
	Prefix bool   // look for what begins with the text at once, and not only where nothing equals it
	Limit  int    // 20
}

// Hit is a task that a search found. Payload, Result and Answer of the task are left empty.
type Hit struct {
	Task
	Matched string // what equals the text, or begins with it: task, key, provider_key, trace_id, or the name of a search term
	Value   string // the whole of it
}

// Search finds tasks by whatever a person has in hand. What equals the text comes first, and only where nothing does,
// what begins with it: keys, provider keys and search terms. Equal ones are ordered by what they match (in the order of
// Search), then come those with an effect at a provider, as a charge does before its receipt, and then the newest; those that
// begin with the text are ordered by what they match and then by value.
//
// Every part of it is a look-up in an index, however large the table is. With a Kind the newest 10,000 tasks of a search
// term are looked through. Only the hash of a key, "hash-" and the first 16 hex digits of its SHA-256, is looked for in the
// keys of all tasks, or of all of the Kind: some seconds for each ten million. It blocks for one or two round trips.
func (s *Store) Search(ctx context.Context, q Search) ([]Hit, error) {
	if q.Limit <= 0 {
		q.Limit = 20
	}
	var hits []Hit
	var err error
	if !q.Prefix {
		hits, err = s.searchBy(ctx, searchExact, q.exact())
	}
	if m := keyHashes.FindStringSubmatch(q.Text); err == nil && len(hits) == 0 && m != nil {
		hits, err = s.searchBy(ctx, searchHashed, []any{m[1], orNull(q.Kind), q.Limit})
	}
	if err == nil && len(hits) == 0 && q.Text != "" {
		hits, err = s.searchBy(ctx, searchPrefix, q.prefix())
	}
	if err != nil {
		return nil, fmt.Errorf("search tasks: %w", err)
	}
	return hits, nil
}

// searchBy runs one search under the planner's settings for keys.
func (s *Store) searchBy(ctx context.Context, sql string, args []any) (hits []Hit, err error) {
	err = again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) { b.Queue(sql, args...) }, func(r pgx.BatchResults) error {
			rows, err := r.Query()
			if err == nil {
				hits, err = pgx.CollectRows(rows, scanHit)
			}
			return err
		}))
	})
	return hits, err
}

func scanHit(row pgx.CollectableRow) (h Hit, err error) {
	h.Task, err = scanTaskAnd(row, &h.Matched, &h.Value)
	return h, err
}

var (
	keyHashes    = regexp.MustCompile(`^hash-([0-9a-f]{16})$`)
	traceIDs     = regexp.MustCompile(`^[0-9a-f]{32}$`)
	traceparents = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)
)

// exact are the arguments of searchExact.
func (q Search) exact() []any {
	var id *int64
	if n, err := strconv.ParseInt(q.Text, 10, 64); err == nil {
		id = &n
	}
	trace := strings.ToLower(q.Text)
	if m := traceparents.FindStringSubmatch(trace); m != nil {
		trace = m[1]
	}
	if !traceIDs.MatchString(trace) {
		trace = ""
	}
	kind, key, _ := strings.Cut(q.Text, "/")
	return []any{q.Text, orNull(q.Kind), id, kind, key, orNull(trace), q.Limit}
}

// digits is how much of a derived provider key is in its index.
const digits = 12

// prefix are the arguments of searchPrefix.
func (q Search) prefix() []any {
	kind, key, slash := strings.Cut(q.Text, "/")
	var ofKind, from, below *string
	if slash {
		end := after(key)
		ofKind, from, below = &kind, &key, &end
	}
	var derived, derivedBelow *string
	if rest, ok := strings.CutPrefix(q.Text, "s1-"); ok {
		rest = rest[:min(len(rest), digits)]
		end := after(rest)
		derived, derivedBelow = &rest, &end
	}
	return []any{q.Text, orNull(q.Kind), after(q.Text), ofKind, from, below, derived, derivedBelow, q.Limit}
}

// after is the first text, in byte order, behind all those that begin with p. Byte order is the order of code points.
func after(p string) string {
	for p != "" {
		r, size := utf8.DecodeLastRuneInString(p)
		p = p[:len(p)-size]
		switch r {
		case utf8.MaxRune:
			continue
		case 0xD7FF: // the surrogates behind it are no characters
			return p + "\uE000"
		}
		return p + string(r+1)
	}
	return strings.Repeat(string(utf8.MaxRune), 128) // longer than any key
}

// allKinds and allNames jump from one value of an index's first column to the next. There are few.
const allKinds = `kinds(kind) as (
  (select min(kind) from settle.tasks)
  union all
  select (select min(t.kind) from settle.tasks t where t.kind > k.kind) from kinds k where k.kind is not null
)`

const allNames = `names(name) as (
  (select min(name) from settle.task_refs)
  union all
  select (select min(r.name) from settle.task_refs r where r.name > n.name) from names n where n.name is not null
)`

// searchExact: $1 text, $2 only of this kind, $3 the text as a number, $4 and $5 its parts before and behind the first
// slash, $6 the trace id that it is, $7 limit.
const searchExact = `/* settle:search-exact */
with recursive ` + allKinds + `, ` + allNames + `, hits(id, rank, matched, value) as (
  select $3::bigint, 1, 'task', $1::text
  union all
  select t.id, 2, 'key', t.key from kinds k join settle.tasks t on t.kind = k.kind and t.key = $1
  union all
  select t.id, 2, 'key', t.key from settle.tasks t where t.kind = $4 and t.key = $5
  union all
  select t.id, 3, 'provider_key', t.provider_key from settle.tasks t
  where t.provider_key like 's1-%' and substr(t.provider_key, 4, 12) collate "C" = substr($1, 4, 12) and t.provider_key = $1
  union all
  select f.* from names n cross join lateral (
    select r.task_id, case r.name when 'external_id' then 4 else 5 end, r.name, r.value
    from (select * from settle.task_refs r where r.name = n.name and r.value = $1 order by r.task_id desc limit 10000) r
      join settle.tasks t on t.id = r.task_id and ($2::text is null or t.kind = $2)
    order by r.task_id desc limit $7) f
  union all
  (select t.id, 6, 'trace_id', $6::text from settle.tasks t
   where t.origin_trace <> '' and substr(t.origin_trace, 4, 12) collate "C" = substr($6, 1, 12) and substr(t.origin_trace, 4, 32) = $6
   limit 10000)
  union all
  (select e.task_id, 6, 'trace_id', e.trace_id from settle.task_events e where e.trace_id <> '' and e.trace_id = $6 limit 10000)
)
` + searchHits + `order by h.rank, t.provider = '', t.id desc limit $7`

// searchPrefix: $1 text, $2 only of this kind, $3 the end of what begins with the text, $4 its part before the first slash,
// $5 and $6 the one behind it and the end of that, $7 and $8 the same of the digits of a derived provider key, $9 limit.
const searchPrefix = `/* settle:search-prefix */
with recursive ` + allKinds + `, ` + allNames + `, hits(id, rank, matched, value) as (
  select f.* from kinds k cross join lateral (
    select t.id, 2, 'key', t.key from settle.tasks t
    where t.kind = k.kind and t.key >= $1 and t.key < $3 order by t.key limit $9) f
  where $2::text is null or k.kind = $2
  union all
  (select t.id, 2, 'key', t.key from settle.tasks t
   where t.kind = $4 and t.key >= $5 and t.key < $6 order by t.key limit $9)
  union all
  (select t.id, 3, 'provider_key', t.provider_key from settle.tasks t
   where t.provider_key like 's1-%' and substr(t.provider_key, 4, 12) collate "C" >= $7 and substr(t.provider_key, 4, 12) collate "C" < $8
     and starts_with(t.provider_key, $1)
   order by substr(t.provider_key, 4, 12) collate "C" limit $9)
  union all
  select f.* from names n cross join lateral (
    select r.task_id, case r.name when 'external_id' then 4 else 5 end, r.name, r.value
    from (select * from settle.task_refs r where r.name = n.name and r.value >= $1 and r.value < $3
          order by r.value, r.task_id limit 10000) r
      join settle.tasks t on t.id = r.task_id and ($2::text is null or t.kind = $2)
    order by r.value, r.task_id limit $9) f
)
` + searchHits + `order by h.rank, h.value collate "C", t.id limit $9`

// searchHashed: $1 the beginning of a hash, $2 only of this kind, $3 limit. A provider key may be hashed as well.
const searchHashed = `/* settle:search-hashed */
select ` + lightColumns + `, case when h.of_key = $1 then 'key' else 'provider_key' end, case when h.of_key = $1 then t.key else t.provider_key end
from settle.tasks t
  cross join lateral (select left(encode(sha256(convert_to(t.key, 'UTF8')), 'hex'), 16) as of_key,
                             left(encode(sha256(convert_to(t.provider_key, 'UTF8')), 'hex'), 16) as of_provider_key) h
where ($2::text is null or t.kind = $2) and $1 in (h.of_key, h.of_provider_key)
order by t.id desc limit $3`

// searchHits reads the tasks of hits, each once and for the best of its reasons.
const searchHits = `select ` + lightColumns + `, h.matched, h.value
from (select distinct on (id) * from hits where id is not null order by id, rank, value) h
  join settle.tasks t on t.id = h.id
where $2::text is null or t.kind = $2
`

// Brief is what a sentence about a task needs, and a Hit leaves out.
type Brief struct {
	Payload []byte // empty if it is longer than 4 KiB
	Ended   string // what the history gives as the reason of its finish; empty where it gives none
}

// Briefs gives those of tasks, by id; a task that is not there has none. They are read by primary key. It is repeated over
// broken connections.
func (s *Store) Briefs(ctx context.Context, ids []int64) (map[int64]Brief, error) {
	found := map[int64]Brief{}
	_, err := query(ctx, s, func(row pgx.CollectableRow) (struct{}, error) {
		var id int64
		var b Brief
		err := row.Scan(&id, &b.Payload, &b.Ended)
		found[id] = b
		return struct{}{}, err
	}, briefs, ids)
	if err != nil {
		return nil, fmt.Errorf("read briefs of tasks: %w", err)
	}
	return found, nil
}

// briefs: $1 ids. The archive is read only for tasks that are in it.
const briefs = `/* settle:briefs */
select t.id, case when octet_length(p.payload) <= 4096 then p.payload end, coalesce((
    select e.reason from settle.task_events e
    where e.task_id = t.id and e.new_status = 'finished' and e.old_status is distinct from 'finished' order by e.id desc limit 1), '')
from settle.tasks t cross join lateral (
  select case when t.archived_at is null then t.payload else (select a.payload from settle.tasks_archive a where a.task_id = t.id) end) p(payload)
where t.id = any($1)`
