package idemstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle"
)

// What a check of the installation asks of the database. All of it only reads.

// Server is what a server says of itself and of this session.
type Server struct {
	Now  time.Time // its clock
	User string

	ReadOnly          bool   // a standby, or a session that only reads
	Fsync             bool   // a crash of the machine forgets nothing that was committed
	FullPageWrites    bool   // nor does it tear a page
	SynchronousCommit string // of this session; our own transactions raise it

	Standbys            int      // that stream from it; backups, archivers of WAL and logical subscribers are none
	NamesOfStandbys     []string // their application_name, each once; what has none is left out
	SynchronousStandbys int      // of all that stream, those that a commit waits for; only some users are shown it
	StandbyNames        string   // synchronous_standby_names

	Connections int // that are there for everybody, of all its databases
}

// Server asks the server about itself. It blocks for one round trip.
func (s *Store) Server(ctx context.Context) (out Server, err error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (v Server, err error) {
		err = row.Scan(&v.Now, &v.User, &v.ReadOnly, &v.Fsync, &v.FullPageWrites, &v.SynchronousCommit, &v.Standbys, &v.NamesOfStandbys,
			&v.SynchronousStandbys, &v.StandbyNames, &v.Connections)
		return v, err
	}, aboutServer)
	if err != nil {
		return out, fmt.Errorf("ask the server about itself: %w", err)
	}
	return found[0], nil
}

// HasTasks reports whether there is any task, of whatever status. It blocks for one round trip.
func (s *Store) HasTasks(ctx context.Context) (bool, error) {
	found, err := query(ctx, s, pgx.RowTo[bool], hasTasks)
	if err != nil {
		return false, fmt.Errorf("look for tasks: %w", err)
	}
	return found[0], nil
}

// Use is who needs what is lacking.
type Use string

// The uses. Those of kinds are for workers that serve a kind of this sort.
const (
	UseAlways    Use = ""                  // each worker, or the tables themselves
	UseSteps     Use = "resumable kinds"   // record by record
	UseGuard     Use = "kinds of events"   // with an order guard
	UsePrefix    Use = "kinds with prefix" // plain provider keys
	UseCap       Use = "capped kinds"      // that share a provider's cap
	UseCharts    Use = "charts"            // of the support screen, for which workers count
	UseOperators Use = "operators"         // commands of people, and no worker
)

// Lack is something that the schema, or its user, should have.
type Lack struct {
	What    string // index, constraint or privilege
	Name    string // of the index, of the constraint, or the privilege: insert
	On      string // the table, or the schema
	Use     Use    // of a privilege
	Invalid bool   // the index is there, but unfinished: nothing reads it
	Columns string // of an index, what its definition says behind the name: on settle.tasks (id)
}

// schemaNames finds what a table of the engine declares by name.
var schemaNames = regexp.MustCompile(`(?m)^create index if not exists (\w+) (on settle\.[^;]+);|^  constraint (\w+)`)

// Lacks returns the indexes and constraints of schema settle that are not there or not valid, and the privileges that a
// worker or an operator needs and this user does not have. What belongs to a table that is missing itself is left out: see
// CheckSchema. It blocks for one round trip.
func (s *Store) Lacks(ctx context.Context) ([]Lack, error) {
	var indexes, constraints []string
	columns := map[string]string{}
	own, _, _ := strings.Cut(settle.Schema(), "create schema if not exists shop")
	for _, m := range schemaNames.FindAllStringSubmatch(own, -1) {
		if m[1] != "" {
			indexes, columns[m[1]] = append(indexes, m[1]), strings.Join(strings.Fields(m[2]), " ")
		} else {
			constraints = append(constraints, m[3])
		}
	}
	found, err := query(ctx, s, func(row pgx.CollectableRow) (l Lack, err error) {
		err = row.Scan(&l.What, &l.Name, &l.On, &l.Use, &l.Invalid)
		if l.What == "index" {
			l.Columns = columns[l.Name]
		}
		return l, err
	}, lacks, indexes, constraints)
	if err != nil {
		return nil, fmt.Errorf("look for what the schema lacks: %w", err)
	}
	return found, nil
}

// aboutServer: all sessions see that something streams, and its name; only some see its state, so that is asked for as far
// as it is shown. A backup streams beside the session that has the state, so the tools that come with the server are known
// by their names as well. None of these is there to fail over to, and a commit that waited for one would wait for ever
// once it has ended.
const aboutServer = `/* settle:about-server */
with standbys as materialized (
  select r.application_name from pg_stat_replication r
  where r.state is distinct from 'backup'
    and coalesce(r.application_name, '') not in ('pg_basebackup', 'pg_receivewal', 'pg_recvlogical')
    and not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')
)
select clock_timestamp(), current_user::text,
  pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
  current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
  (select count(*)::int from standbys),
  (select coalesce(array_agg(distinct application_name order by application_name) filter (where application_name <> ''), '{}') from standbys),
  (select count(*)::int from pg_stat_replication where sync_state in ('sync', 'quorum')),
  current_setting('synchronous_standby_names'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`

// hasTasks stops at the first row.
const hasTasks = `/* settle:has-tasks */
select exists (select from settle.tasks)`

// lacks: $1 indexes, $2 constraints that schema.sql names. The privileges are those of the statements of a worker, by what
// its kinds need, and of the operator commands; archiving and removing old rows needs more, and says so itself. The lock
// under which prefixes are registered takes the privilege to update.
const lacks = `/* settle:lacks */
with tables as (
  select c.oid, c.relname, n.oid as schema from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'settle' and c.relkind = 'r'
), needed(relname, privileges, use) as (values
  ('schema_version', '{select}', ''), ('tasks', '{select,insert,update}', ''), ('task_refs', '{insert}', ''),
  ('task_events', '{select,insert}', ''), ('refusals', '{select,insert}', ''), ('outbox', '{select,insert,update,delete}', ''),
  ('tasks_archive', '{select}', ''), ('controls', '{select}', ''), ('alerts', '{select,insert,update}', ''),
  ('steps', '{select,insert}', '` + string(UseSteps) + `'), ('entities', '{select,insert,update}', '` + string(UseGuard) + `'),
  ('key_prefixes', '{select,insert,update}', '` + string(UsePrefix) + `'),
  ('workers', '{select,insert,update,delete}', '` + string(UseCap) + `'),
  ('tallies', '{select,insert,update,delete}', '` + string(UseCharts) + `'),
  ('task_refs', '{select}', '` + string(UseOperators) + `'), ('refusals', '{update}', '` + string(UseOperators) + `'),
  ('steps', '{select}', '` + string(UseOperators) + `'), ('controls', '{insert}', '` + string(UseOperators) + `')
)
select 'privilege', 'usage', 'schema settle', '', false from pg_namespace n
where n.nspname = 'settle' and not has_schema_privilege(n.oid, 'usage')
union all
select 'privilege', p, 'settle.' || t.relname, x.use, false
from needed x join tables t using (relname) cross join unnest(x.privileges::text[]) as p
where not has_table_privilege(t.oid, p)
union all
select 'index', name, 'settle', '', exists (select from pg_class c where c.relname = name and c.relnamespace in (select schema from tables))
from unnest($1::text[]) as name
where exists (select from tables) and not exists (
  select from pg_class c join pg_index i on i.indexrelid = c.oid join tables t on t.oid = i.indrelid
  where c.relname = name and i.indisvalid)
union all
select 'constraint', name, 'settle', '', false from unnest($2::text[]) as name
where exists (select from tables) and not exists (
  select from pg_constraint c join tables t on t.oid = c.conrelid where c.conname = name and c.convalidated)
order by 1, 3, 2, 4`
