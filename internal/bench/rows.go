package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// Here is all SQL of the bench on the engine's tables, in databases of its own: it judges by the rows and not by the
// store's word, and makes more rows in a moment than an engine could.

const (
	countFinished = `select count(*) from settle.tasks where kind = $1 and status = 'finished'`
	countUnknown  = `select count(*) from settle.tasks where kind = $1 and status = 'unknown'`
	countAnswered = `select coalesce(sum(duplicates), 0)::bigint from settle.tasks where kind = $1`
	countByHand   = `select count(*) from jobs where status = 'finished' and $1 <> ''`

	// multiplyTask copies the one task of a kind, which an engine has finished: each copy has a key and a provider key of its
	// own, all over their indexes, and differs as $3 says.
	multiplyTask = `insert into settle.tasks overriding system value
select r.* from settle.tasks t cross join generate_series(1, $2::int) i
cross join lateral (select left(md5(i::text), 16) || '-s' || i as key) k
cross join lateral jsonb_populate_record(t, jsonb_build_object(
  'id', nextval(pg_get_serial_sequence('settle.tasks', 'id')), 'key', k.key, 'external_id', k.key, 'token', gen_random_uuid(),
  'provider_key', 's1-' || left(encode(sha256(k.key::bytea), 'hex'), 40),
  'payload', '\x' || encode(convert_to(replace(convert_from(t.payload, 'UTF8'), t.key, k.key), 'UTF8'), 'hex')) || $3::jsonb) r
where t.kind = $1`
	// multiplyRefs gives every task the search terms that the first one has.
	multiplyRefs = `insert into settle.task_refs (name, value, task_id)
select f.name, t.external_id, t.id from settle.tasks t,
  (select name, task_id from settle.task_refs where task_id = (select min(id) from settle.tasks where kind = $1)) f
where t.kind = $1 and t.id <> f.task_id and t.external_id is not null`

	asFinished = `{}`
	asUnknown  = `{"status": "unknown", "unsure": true, "sending": false, "failures": 1, "external_id": null, "result": null,
  "finished_at": null, "expires_at": null, "first_sent_at": "2000-01-01T00:00:00Z", "last_sent_by": "2000-01-01T00:00:00Z",
  "next_attempt_at": "2000-01-01T00:00:00Z"}`
)

// multiply has an engine finish one job and makes so many rows of its task, which then differ from it as asked.
func (s *Stage) multiply(ctx context.Context, rows int, as string) error {
	one := *s
	one.Jobs, one.waits, one.keys = 1, nil, func(int) string { return "seed" }
	if err := one.Queue(ctx); err != nil {
		return err
	}
	if err := engine(external, unseen, acked)(ctx, &one); err != nil {
		return err
	}
	if _, err := s.Pool.Exec(ctx, multiplyTask, s.Kind, rows, as); err != nil {
		return fmt.Errorf("make %d rows: %w", rows, err)
	}
	if _, err := s.Pool.Exec(ctx, multiplyRefs, s.Kind); err != nil {
		return err
	}
	s.rows = rows
	// Else the server would do it in the middle of the measurement.
	_, err := s.Pool.Exec(ctx, "vacuum analyze settle.tasks, settle.task_refs")
	return err
}

// count runs one of the counts above.
func (s *Stage) count(ctx context.Context, query string) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, query, s.Kind).Scan(&n)
	return n, err
}

// want checks a count.
func (s *Stage) want(ctx context.Context, what, query string, want int) error {
	n, err := s.count(ctx, query)
	if err == nil && n != want {
		err = fmt.Errorf("%d %s, want %d", n, what, want)
	}
	return err
}

func doneByHand(ctx context.Context, s *Stage) error {
	return s.want(ctx, "rows are finished", countByHand, s.Jobs)
}

func finished(ctx context.Context, s *Stage) error {
	want := s.Jobs
	if s.rows > 0 {
		want += s.rows + 1 // and the row that they were made of
	}
	return s.want(ctx, "rows are finished", countFinished, want)
}

func nothingUnknown(ctx context.Context, s *Stage) error {
	return s.want(ctx, "rows are finished", countFinished, s.rows+1)
}

func answered(ctx context.Context, s *Stage) error {
	if err := finished(ctx, s); err != nil {
		return err
	}
	return s.want(ctx, "duplicates were answered", countAnswered, s.Jobs)
}

// emitted checks that each job has left one event.
func emitted(ctx context.Context, s *Stage) error {
	if err := finished(ctx, s); err != nil {
		return err
	}
	stream, err := s.JS.Stream(ctx, eventStream)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(s.event()))
	if err != nil {
		return err
	}
	if n := info.State.Subjects[s.event()]; n != uint64(s.Jobs) { //nolint:gosec // not so many
		return fmt.Errorf("%d events, want %d", n, s.Jobs)
	}
	return nil
}
