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

	Standbys            int    // that stream from it
	SynchronousStandbys int    // of these, those that a commit waits for
	StandbyNames        string // synchronous_standby_names

	Connections int // that are there for everybody, of all its databases
}

// Server asks the server about itself. It blocks for one round trip.
func (s *Store) Server(ctx context.Context) (out Server, err error) {
	found, err := query(ctx, s, func(row pgx.CollectableRow) (v Server, err error) {
		err = row.Scan(&v.Now, &v.User, &v.ReadOnly, &v.Fsync, &v.FullPageWrites, &v.SynchronousCommit, &v.Standbys, &v.SynchronousStandbys,
			&v.StandbyNames, &v.Connections)
		return v, err
	}, aboutServer)
	if err != nil {
		return out, fmt.Errorf("ask the server about itself: %w", err)
	}
	return found[0], nil
}

// Lack is something that the schema, or its user, should have.
type Lack struct {
	What string // index, constraint or privilege
	Name string // of the index, of the constraint, or the privilege: insert
	On   string // the table, or the schema
}

// schemaNames finds what a table of the engine declares by name.
var schemaNames = regexp.MustCompile(`(?m)^create index if not exists (\w+) on settle\.|^  constraint (\w+)`)

// Lacks returns the indexes and constraints of schema settle that are not there or not valid, and the privileges that a
// worker needs and this user does not have. What belongs to a table that is missing itself is left out: see CheckSchema.
// It blocks for one round trip.
func (s *Store) Lacks(ctx context.Context) ([]Lack, error) {
	var indexes, constraints []string
	own, _, _ := strings.Cut(settle.Schema, "create schema if not exists shop")
	for _, m := range schemaNames.FindAllStringSubmatch(own, -1) {
		if m[1] != "" {
			indexes = append(indexes, m[1])
		} else {
			constraints = append(constraints, m[2])
		}
	}
	found, err := query(ctx, s, func(row pgx.CollectableRow) (l Lack, err error) {
		err = row.Scan(&l.What, &l.Name, &l.On)
		return l, err
	}, lacks, indexes, constraints)
	if err != nil {
		return nil, fmt.Errorf("look for what the schema lacks: %w", err)
	}
	return found, nil
}

// aboutServer: all sessions see that a standby is there; only some see more of it, so its state is asked for as far as
// it is shown.
const aboutServer = `/* settle:about-server */
select clock_timestamp(), current_user::text,
  pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
  current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
  (select count(*)::int from pg_stat_replication),
  (select count(*)::int from pg_stat_replication where sync_state in ('sync', 'quorum')),
  current_setting('synchronous_standby_names'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`

// lacks: $1 indexes, $2 constraints that schema.sql names. The privileges are those of the statements of a worker and of
// the operator commands; removing old key rows needs more, and says so itself.
const lacks = `/* settle:lacks */
with tables as (
  select c.oid, c.relname, n.oid as schema from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'settle' and c.relkind = 'r'
), needed(relname, privileges) as (values
  ('schema_version', '{select}'), ('tasks', '{select,insert,update}'), ('task_refs', '{select,insert}'),
  ('task_events', '{select,insert}'), ('refusals', '{select,insert,update}'), ('outbox', '{select,insert,update,delete}'),
  ('steps', '{select,insert}'), ('tasks_archive', '{select}'), ('entities', '{select,insert,update}'),
  ('key_prefixes', '{select,insert}'), ('controls', '{select}'), ('workers', '{select,insert,update,delete}'),
  ('alerts', '{select,insert,update}')
)
select 'privilege', 'usage', 'schema settle' from pg_namespace n
where n.nspname = 'settle' and not has_schema_privilege(n.oid, 'usage')
union all
select 'privilege', p, 'settle.' || t.relname
from needed x join tables t using (relname) cross join unnest(x.privileges::text[]) as p
where not has_table_privilege(t.oid, p)
union all
select 'index', name, 'settle' from unnest($1::text[]) as name
where exists (select from tables) and not exists (
  select from pg_class c join pg_index i on i.indexrelid = c.oid join tables t on t.oid = i.indrelid
  where c.relname = name and i.indisvalid)
union all
select 'constraint', name, 'settle' from unnest($2::text[]) as name
where exists (select from tables) and not exists (
  select from pg_constraint c join tables t on t.oid = c.conrelid where c.conname = name and c.convalidated)
order by 1, 3, 2`
