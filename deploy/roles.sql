-- The database roles of an installation, each with the rights that its statements need and no others.
--
--   settle_migrator   owns schemas and tables          settle migrate
--   settle_worker     claims, saves, publishes         settle work
--   settle_recovery   asks, sends and saves, without NATS    settle recover, and what operators do through it
--   settle_archiver   moves old payloads away          settle archive
--   settle_viewer     reads                            settle admin without a provider, settle tasks list and show, settle alerts
--   settle_operator   reads, recovers, acts            settle admin, settle tasks, settle refusals, settle pause
--   settle_publisher  enqueues in its own transaction  settle.enqueue, PublishTx
--
-- Run it in the database of the installation as a superuser, before the first settle migrate and once more after each
-- one: a table that a release adds has no grants before. Running it again changes nothing, and takes away what was
-- granted to these roles on schema settle and shop beyond it.
--
--   psql -v ON_ERROR_STOP=1 -f roles.sql
--   alter role settle_worker login password '…';    -- or a certificate; the passwords are yours
--
-- DATABASE_URL of each process names its role. Nobody but settle_migrator may change the schema, and nobody at all but it may
-- remove a task or a line of the audit: rows of old tasks go only if you grant it, see the end.

begin;

do $$
declare
  role text;
begin
  foreach role in array array['migrator', 'worker', 'recovery', 'archiver', 'viewer', 'operator', 'publisher'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = 'settle_' || role) then
      execute format('create role %I', 'settle_' || role);
    end if;
  end loop;
  execute format('grant create on database %I to settle_migrator', current_database());
end $$;

do $$
begin
  if pg_catalog.to_regclass('settle.schema_version') is null then
    raise notice 'There are no tables yet: run settle migrate as settle_migrator, and then this file again.';
    return;
  end if;

  revoke all on all tables in schema settle, shop from public, settle_worker, settle_recovery, settle_archiver, settle_viewer,
    settle_operator, settle_publisher;
  revoke execute on all functions in schema settle from public;
  grant usage on schema settle to settle_worker, settle_recovery, settle_archiver, settle_viewer, settle_operator, settle_publisher;

  -- What everybody asks first.
  grant select on settle.schema_version to settle_worker, settle_recovery, settle_archiver, settle_viewer;

  -- settle work. Rows are claimed and changed, and never removed: only what is published leaves the outbox, workers that are
  -- gone leave settle.workers, and counts for charts go after a day.
  grant execute on function settle.fence(boolean, bigint), settle.archived_result(bigint) to settle_worker, settle_recovery;
  grant select, insert, update on settle.tasks to settle_worker;
  grant select, insert on settle.task_refs, settle.task_events, settle.refusals, settle.steps to settle_worker;
  grant select, insert, update, delete on settle.outbox, settle.workers, settle.tallies to settle_worker;
  grant select, insert, update on settle.entities, settle.alerts to settle_worker;
  grant select on settle.tasks_archive, settle.controls to settle_worker;
  -- The lock under which a prefix is registered takes the right to update.
  grant select, insert, update on settle.key_prefixes to settle_worker;

  -- settle recover. As a worker, but it takes no message, so it refuses none and makes no task, and what it emits is published
  -- by workers.
  grant select, update on settle.tasks to settle_recovery;
  grant select, insert on settle.task_refs, settle.task_events, settle.steps, settle.outbox to settle_recovery;
  grant select, insert, update, delete on settle.workers, settle.tallies to settle_recovery;
  grant select, insert, update on settle.entities, settle.alerts, settle.key_prefixes to settle_recovery;
  grant select on settle.tasks_archive, settle.controls to settle_recovery;

  -- The local rows of the reference handlers, which go with the result. Yours take their place.
  grant usage on schema shop to settle_worker, settle_recovery;
  grant select, insert, update on shop.orders, shop.contacts to settle_worker, settle_recovery;
  grant select, insert on shop.payments, shop.receipts, shop.import_events to settle_worker, settle_recovery;

  -- settle archive, without --proof-retention.
  grant select, update on settle.tasks to settle_archiver;
  grant select, insert, update on settle.tasks_archive to settle_archiver;
  grant select on settle.outbox to settle_archiver;

  -- Everything that the screen and the lists read. Payloads are among it: whoever has this role reads customers' data.
  grant select on settle.tasks, settle.task_refs, settle.task_events, settle.refusals, settle.outbox, settle.steps,
    settle.tasks_archive, settle.entities, settle.key_prefixes, settle.controls, settle.workers, settle.alerts,
    settle.presses, settle.tallies to settle_viewer;

  -- The acts of people. What they ask of a provider is done as recovery does it.
  grant settle_viewer, settle_recovery to settle_operator;
  grant insert on settle.controls to settle_operator;
  grant update on settle.refusals to settle_operator;
  grant insert, update on settle.presses to settle_operator;
  grant delete on settle.tasks_archive to settle_operator; -- settle archive restore

  -- Enqueuing in the publisher's own transaction. It can neither read nor take back what is there.
  grant execute on function settle.enqueue(text, text, text, text) to settle_publisher;
  grant insert, select (id) on settle.outbox to settle_publisher;
end $$;

commit;

-- Only where settle archive runs with --proof-retention, which forgets the keys of old tasks for ever:
--
--   grant delete on settle.tasks, settle.task_events, settle.steps, settle.tasks_archive to settle_archiver;
--   grant select, delete on settle.task_refs to settle_archiver;
--   grant select, update on settle.refusals to settle_archiver;
--   grant select on settle.task_events, settle.steps to settle_archiver;
