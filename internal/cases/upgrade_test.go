package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// migrate does to the stage's database what settle migrate does.
func (s *stage) migrate() {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.pool.Config().ConnString())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.t.Context())
	if err := idemstore.Migrate(s.t.Context(), conn); err != nil {
		s.t.Fatal(err)
	}
}

// left is what workers of a release left behind when they were stopped for the upgrade: reports 1 to 7. It names no column
// that is not in every release.
const left = `
insert into provider.reports (report_id, idempotency_key, dedup_key, payload_hash, task_id, report_type, status)
select 'rep_' || n, 'report-task-' || n, 'report-task-' || n, '\x00', n, 'monthly', 'ready' from generate_series(1, 3) as n;
insert into settle.tasks (kind, key, status, attempts, token, sending, unsure, first_sent_at, last_sent_by, give_up_at, provider, provider_key,
	payload, payload_hash, hash_algorithm, review_cause, last_error, result, external_id, finished_at, archived_at, payload_digest)
select 'report.create', 'report-task-' || n, status, 1, gen_random_uuid(), sending, unsure, sent, sent, now() + interval '1 day', '%[1]s', 'report-task-' || n,
	case when n = 2 then '' else convert_to(format('{"task_id":%%s,"report_type":"monthly"}', n), 'utf8') end, '\x00', 'old', cause, error, result, id, done,
	case when n = 2 then now() end, case when n = 2 then sha256('{"task_id":2,"report_type":"monthly"}') end
from (values
	(1, 'finished', false, false, now(), null, null, '{"report_id":"rep_1","status":"ready"}', 'rep_1', now()),
	(2, 'finished', false, false, now(), null, null, null, 'rep_2', now()),
	(3, 'unknown', false, true, now(), null, 'no answer', null, null, null),
	(4, 'unknown', false, true, now() - interval '1 minute', null, 'no answer', null, null, null),
	(5, 'started', false, false, null, null, null, null, null, null),
	(6, 'needs_review', false, true, now(), 'contradictory', 'the provider says otherwise', null, null, null),
	(7, 'failed', false, false, now(), null, 'refused', null, null, now())
) as t(n, status, sending, unsure, sent, cause, error, result, id, done);
insert into settle.tasks_archive (task_id, payload, result)
select id, '{"task_id":2,"report_type":"monthly"}', '{"report_id":"rep_2","status":"ready"}' from settle.tasks where key = 'report-task-2';
insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason)
select id, 'worker', 1, 'started', status, last_error from settle.tasks where last_error is not null;
insert into settle.task_refs select 'report', 'rep_1', id from settle.tasks where key = 'report-task-1';
insert into settle.refusals (kind, reason, body, body_size, digest) values ('report.create', 'malformed', '{', 1, '\x01');
insert into settle.outbox (task_id, name, subject, key, payload)
select id, 'events.report.made 1', 'events.report.made', '1', '{"report":1}' from settle.tasks where key = 'report-task-1'`

// rows are all of the engine's, as JSON.
const rows = `select 'tasks', to_jsonb(t) from settle.tasks t union all select 'archive', to_jsonb(t) from settle.tasks_archive t
	union all select 'events', to_jsonb(t) from settle.task_events t union all select 'refs', to_jsonb(t) from settle.task_refs t
	union all select 'refusals', to_jsonb(t) from settle.refusals t union all select 'outbox', to_jsonb(t) from settle.outbox t`

// changed are the rows that are not any more what they were. Columns may have been added.
const changed = `select name || ' ' || was.row from was
	where not exists (select from (` + rows + `) as now(name, row) where now.name = was.name and now.row @> was.row)`

// From the schema of each release, with what its workers left behind: migrating changes no row, and workers of this build
// take everything up where it was left. What was done stays done, and what a person has to decide still waits for one.
func TestUpgradeFromEveryRelease(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../idemstore/testdata/schema-*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no schema of a release (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := newStage(t)
			s.exec(`drop schema settle, shop, provider cascade`)
			s.exec(string(script))
			s.exec(fmt.Sprintf(left, s.settings.ProviderURL))
			s.exec(`create table was as select * from (` + rows + `) as was(name, row)`)
			if n := query[int](s, `select count(*) from was`)[0]; n != 15 {
				t.Fatalf("%d rows to begin with, want 15", n)
			}
			s.migrate()
			if gone := query[string](s, changed); len(gone) > 0 {
				t.Fatalf("migrating lost or changed %q", gone)
			}
			s.recovering()
			w := s.startWorker()
			s.publish(reports(8)...) // all come again, and a new one
			for n, status := range []idemstore.Status{idemstore.Finished, idemstore.Finished, idemstore.Finished, idemstore.Finished,
				idemstore.Finished, idemstore.NeedsReview, idemstore.Failed, idemstore.Finished} {
				s.awaitStatus(report(n+1), status)
			}
			s.awaitSettled()
			for n, want := range []int{1, 1, 1, 1, 1, 0, 0, 1} {
				if e := len(s.effects(report(n + 1))); e != want {
					t.Errorf("report %d has %d effects, want %d", n+1, e, want)
				}
			}
			rig.Eventually(t, soon, "the outbox is empty", func() bool { return query[int](s, `select count(*) from settle.outbox`)[0] == 0 })
			if n := query[int](s, `select count(*) from settle.refusals`)[0]; n != 1 {
				t.Errorf("%d refusals, want the old one alone: %q", n, s.refusals())
			}
			for _, n := range []int{1, 2} {
				if w, _ := s.requests(report(n)); w != 0 {
					t.Errorf("report %d was done and sent again", n)
				}
			}
			drained(t, w)
		})
	}
}
