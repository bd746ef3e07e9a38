-- Settle's tables. This file is the only copy: `settle migrate` runs it, and running it again changes nothing.
--
-- Three schemas:
--   settle    the engine's own: what every key went through, and what it ended with
--   shop      the local rows of the reference handlers (orders, payments, contacts)
--   provider  the stand-in provider of `settle provider`, demo and tests; a real provider lives elsewhere
--
-- All times are timestamptz and come from the database clock.

create schema if not exists settle;

-- One row. A worker refuses to start on an older version and says what to run. On a newer one it starts as long as that
-- only added things (expand); the release that takes something away raises usable_from (contract), which leaves older
-- workers out. So a deploy migrates first, and both generations work until the old one is gone.
create table if not exists settle.schema_version (
  only_row    boolean primary key default true check (only_row),
  version     int not null,
  usable_from int not null default 1, -- the oldest version whose builds work on this schema
  applied_at  timestamptz not null default clock_timestamp(),
  constraint schema_version_order check (usable_from <= version)
);

-- A task is one business key of one kind, for ever: the row is the memory that makes a repeat harmless.
create table if not exists settle.tasks (
  id               bigint generated always as identity primary key,
  kind             text not null check (octet_length(kind) between 1 and 64),
  key              text collate "C" not null check (octet_length(key) between 1 and 512), -- byte order: found by prefix
  status           text not null check (status in ('started', 'finished', 'failed', 'unknown', 'needs_review')),

  -- The fence. Both must match in every statement of an attempt. The number says which attempt, the token whose.
  attempts         int  not null default 1 check (attempts >= 1),
  token            uuid not null,
  lease_until      timestamptz,            -- only while started: an attempt owns the task, or died with it

  -- What may have happened at the provider.
  sending          boolean not null,       -- the current attempt may send (false while it only asks)
  unsure           boolean not null default false, -- an attempt before the current one may have been applied
  first_sent_at    timestamptz,            -- not after the first send: the age of the provider's key
  last_sent_by     timestamptz,            -- not before the last send of attempts that are over
  absent_at        timestamptz,            -- first settled "the provider does not know it"
  evidence_id      text,                   -- late proof, brought by an attempt that had lost the task
  external_id      text,                   -- the provider's id of the effect; written once

  -- Budget and time.
  failures         int  not null default 0,
  next_attempt_at  timestamptz not null default clock_timestamp(),
  give_up_at       timestamptz not null,
  resend_once      boolean not null default false, -- an operator's one-shot permission

  -- Who the effect is asked from, and under which key.
  provider         text not null default '',
  provider_key     text not null default '',

  -- What was asked.
  payload          bytea not null,         -- exact bytes of the message; every attempt decodes these. Empty once archived
  payload_digest   bytea,                  -- SHA-256 of those bytes, once archived: a repeat is still known by its bytes
  payload_hash     bytea not null,
  hash_algorithm   text  not null,

  -- What came of it.
  result           text,                   -- JSON, at most 64 KiB
  result_altered   boolean not null default false, -- a part could not be stored as it was
  provider_status  int,
  answer           text,                   -- the provider's last answer, bounded and cleaned
  last_error       text,                   -- at most 2 KiB
  error_class      text,
  review_cause     text,                   -- why a person is asked, in one stable word; only while needs_review

  -- Where it came from.
  duplicates       int not null default 0, -- deliveries answered from this row
  last_duplicate_at timestamptz,
  stream           text not null default '',
  stream_sequence  bigint not null default 0,
  stored_at        timestamptz,            -- when the stream stored the message
  reply_subject    text not null default '', -- whom to answer if the message is gone; empty where nobody waits any more
  event_id         text,                   -- of the CloudEvent that brought it; null: it came as a plain job
  event_source     text,
  origin_trace     text not null default '', -- traceparent of the publisher, or of the first delivery
  last_trace       text not null default '', -- traceparent of the latest attempt

  created_at       timestamptz not null default clock_timestamp(),
  updated_at       timestamptz not null default clock_timestamp(),
  finished_at      timestamptz,
  expires_at       timestamptz,            -- when the heavy columns may be archived
  archived_at      timestamptz,            -- payload, result and answer are in tasks_archive

  constraint tasks_one_row_per_key unique (kind, key),
  constraint tasks_final_has_finish_time
    check ((status in ('finished', 'failed')) = (finished_at is not null)),
  constraint tasks_lease_only_while_started
    check (status = 'started' or lease_until is null),
  constraint tasks_lease_at_most_a_day
    check (lease_until is null or lease_until <= updated_at + interval '1 day'),
  -- "Released" means: known not applied. Said positively, so that no other path can leave such a row behind.
  constraint tasks_released_is_clean
    check (not (status = 'started' and lease_until is null and (unsure or sending or first_sent_at is not null))),
  constraint tasks_unknown_is_unsure
    check (status <> 'unknown' or unsure),
  constraint tasks_cause_only_in_review
    check (status = 'needs_review' or review_cause is null),
  constraint tasks_external_id_means_unsure
    check (external_id is null and evidence_id is null or unsure or status in ('finished', 'failed')),
  -- What has no payload cannot be attempted: it is restored first.
  constraint tasks_archived_is_final
    check (archived_at is null or status in ('finished', 'failed'))
) with (fillfactor = 70); -- room for heartbeats and repeats, which change no indexed column

-- What nobody holds and what is due. Small: final rows are not in it.
create index if not exists tasks_open on settle.tasks (next_attempt_at, id) where status in ('started', 'unknown');
-- What waits for a person. No index has a column that a heartbeat or a duplicate changes.
create index if not exists tasks_parked on settle.tasks (id) where status = 'needs_review';
-- What failed, for lists: few rows of many.
create index if not exists tasks_failed on settle.tasks (id) where status = 'failed';
-- Of those that wait for a person, those about which the provider goes on being asked.
create index if not exists tasks_asked on settle.tasks (next_attempt_at, id)
  where status = 'needs_review' and review_cause in ('budget', 'age');
-- Search by trace id and by derived provider key (a plain one begins as its key does). Twelve hex digits of either fit in
-- the smallest entry and tell all but a few apart. What they index is set by the insert.
create index if not exists tasks_of_trace on settle.tasks (substr(origin_trace, 4, 12) collate "C") where origin_trace <> '';
create index if not exists tasks_of_derived_key on settle.tasks (substr(provider_key, 4, 12) collate "C") where provider_key like 's1-%';

-- Search terms of a task: customer, reference, external id. Insert-only: an index on a column of tasks gets an entry with
-- every new version of the row that is no heap-only one, and a save is none, because it takes the row out of tasks_open.
-- No foreign key: it would cost every save a look-up, and the only writer inserts the task in the same statement or holds
-- its row.
create table if not exists settle.task_refs (
  name    text   collate "C" not null check (octet_length(name) between 1 and 64),
  value   text   collate "C" not null check (octet_length(value) between 1 and 512),
  task_id bigint not null,
  primary key (name, value, task_id)
);

-- The audit: append-only. The happy path writes nothing here (the row's own times say it);
-- every take-over, unknown, look-up, repair, review, operator act and late proof does.
create table if not exists settle.task_events (
  id          bigint generated always as identity primary key,
  task_id     bigint not null references settle.tasks (id),
  at          timestamptz not null default clock_timestamp(),
  actor       text not null,               -- 'worker', 'recovery', or who did it by hand
  attempt     int  not null,
  old_status  text,
  new_status  text,
  reason      text not null,
  external_id text,
  trace_id    text not null default ''
);
create index if not exists task_events_of_task on settle.task_events (task_id, id);
create index if not exists task_events_of_trace on settle.task_events (trace_id) where trace_id <> '';

-- Messages that were never accepted, with as much of them as is needed to look or to publish them again.
create table if not exists settle.refusals (
  id              bigint generated always as identity primary key,
  at              timestamptz not null default clock_timestamp(),
  kind            text not null default '',
  key             text not null default '',
  reason          text not null check (reason in ('malformed', 'too_large', 'bad_key', 'unknown_kind', 'conflict', 'outbox')),
  detail          text not null default '',
  stream          text not null default '',
  sequence        bigint not null default 0,
  stored_at       timestamptz not null default '-infinity',
  subject         text not null default '',
  headers         text not null default '',  -- JSON, bounded
  body            bytea not null,             -- the beginning of the body
  body_size       int not null,
  cut             boolean not null default false, -- the body is not whole and cannot be published again
  digest          bytea not null,
  task_id         bigint references settle.tasks (id), -- the task it conflicts with

  -- A person published its body once more, under a message id of its own.
  republished_at   timestamptz,
  republished_by   text,
  republish_reason text,
  republished_as   bigint,                    -- sequence of the new message

  constraint refusals_once unique (stream, sequence, stored_at, digest)
);
create index if not exists refusals_recent on settle.refusals (at);
create index if not exists refusals_of_task on settle.refusals (task_id) where task_id is not null;

-- Events and follow-up jobs: written with the result, or in a publisher's own transaction, published afterwards, and
-- deleted after the confirmed PubAck. A row that is left behind by a crash is published by any worker.
create table if not exists settle.outbox (
  id         bigint generated always as identity primary key,
  task_id    bigint references settle.tasks (id), -- null: a job that a publisher enqueued in its own transaction
  name       text not null,               -- subject + key: unique within the task, so Commit may run again
  subject    text not null check (octet_length(subject) between 1 and 256),
  key        text not null default '',
  payload    bytea not null,
  message_id text not null default '',    -- Nats-Msg-Id; empty: made of task and name
  reply      text not null default '',    -- Settle-Reply of a job
  trace      text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  failures   int not null default 0,      -- publishes that were not confirmed
  next_at    timestamptz not null default clock_timestamp(), -- not published before
  last_error text not null default '',
  constraint outbox_once unique (task_id, name)
);

-- Enqueues a job in the caller's own transaction, from any language: rolled back, nothing is published; committed, it is
-- published even if the caller dies. The body is kept byte for byte, so pass text, not jsonb. A job that no worker
-- would accept is found when it arrives, as if it had been published by hand. reply is the subject that the answer goes
-- to, once the job is over; trace is a traceparent.
create or replace function settle.enqueue(kind text, body text, reply text default '', trace text default '')
returns bigint language plpgsql as $$
declare
  row_id bigint;
begin
  if kind is null or kind !~ '^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$' or octet_length(kind) > 64 then
    raise exception 'settle.enqueue: % is no name of a kind', coalesce(quote_literal(kind), 'null')
      using errcode = '22023', hint = 'lower-case words joined by dots, at most 64 bytes: payment.charge';
  end if;
  if body is null or json_typeof(body::json) <> 'object' then
    raise exception 'settle.enqueue: the body of kind % is not one JSON object', kind using errcode = '22023';
  end if;
  if octet_length(body) > 262144 then
    raise exception 'settle.enqueue: the body of kind % has % bytes; the limit is 262144', kind, octet_length(body)
      using errcode = '22023';
  end if;
  if reply <> '' and (octet_length(reply) > 256 or reply !~ '^(_INBOX|settle\.reply)\.'
      or reply collate "C" ~ '[^[:graph:]]|[*>]|\.\.|\.$') then
    raise exception 'settle.enqueue: an answer to % cannot be sent', quote_literal(left(reply, 300))
      using errcode = '22023', hint = 'a subject below _INBOX. or settle.reply., without wildcards';
  end if;
  insert into settle.outbox (name, subject, payload, reply, trace)
  values (gen_random_uuid()::text, 'jobs.' || kind, convert_to(body, 'UTF8'), coalesce(reply, ''), coalesce(trace, ''))
  returning id into row_id;
  return row_id;
end $$;

-- Progress of resumable jobs: one row per record that is done or set aside, written with the record's own rows.
create table if not exists settle.steps (
  task_id bigint not null references settle.tasks (id),
  idx     int    not null check (idx >= 0), -- counts from 0
  total   int    not null check (total > idx), -- number of records of the task
  outcome text   not null,                -- the handler's word, or 'set aside'
  reason  text,                           -- why it was set aside
  at      timestamptz not null default clock_timestamp(),
  primary key (task_id, idx)
);

-- The heavy columns of old final rows. The key row itself never leaves settle.tasks.
create table if not exists settle.tasks_archive (
  task_id     bigint primary key references settle.tasks (id),
  payload     bytea,
  result      text,
  answer      text,
  archived_at timestamptz not null default clock_timestamp()
);

-- The result of an archived task, read with a snapshot of its own (volatile): for statements that lock the row first.
create or replace function settle.archived_result(task bigint) returns text
language sql volatile as $$ select r.result from settle.tasks_archive r where r.task_id = task $$;

-- The order guard of kinds whose jobs are events of a changing thing, one row per thing. Its row lock is what makes two
-- workers agree about the order: an event is sent only by the holder, and a newer version that was applied is on the row
-- in the same commit as the result. Columns of text sort by bytes, so that every statement locks in the same order.
create table if not exists settle.entities (
  kind           text collate "C" not null,
  entity         text collate "C" not null check (octet_length(entity) between 1 and 512),

  -- The newest version that is known to be applied. Each part only grows.
  version_number bigint,
  version_time   text collate "C",         -- UTC, all digits that the source gave: 2026-11-29T10:00:00.25
  applied_by     bigint,                   -- the task that brought it

  -- The task that took the guard last, and its version. It holds the guard while its own row says that a request of it
  -- may be under way; one that is over, released or purged holds nothing.
  holder         bigint,
  holder_number  bigint,
  holder_time    text collate "C",

  updated_at     timestamptz not null default clock_timestamp(),
  primary key (kind, entity)
) with (fillfactor = 70);

-- Who owns a plain provider-key prefix, also across processes: no prefix may begin another at one provider.
create table if not exists settle.key_prefixes (
  provider text not null,
  prefix   text not null,
  kind     text not null,
  primary key (provider, prefix)
);

-- What people ask of a kind while workers run. Append-only: the latest row of a kind counts, and a kind without one is
-- running. Workers read it with each heartbeat.
create table if not exists settle.controls (
  id     bigint generated always as identity primary key,
  kind   text not null check (octet_length(kind) between 1 and 64),
  mode   text not null check (mode in ('running', 'asking', 'paused')), -- asking: send nothing, keep asking
  actor  text not null check (actor <> ''),
  reason text not null check (reason <> ''),
  at     timestamptz not null default clock_timestamp()
);
create index if not exists controls_of_kind on settle.controls (kind, id desc);

-- What was pressed on the support screen: one row per form, so that a form that is sent twice does one thing, and whoever
-- sent it reads what came of it. The history of a task is in task_events; this is also about acts that changed nothing.
create table if not exists settle.presses (
  id       uuid primary key,                  -- given out with the form
  token    uuid not null,                     -- of the one who does it
  at       timestamptz not null default clock_timestamp(),
  actor    text not null check (actor <> ''),
  act      text not null check (act <> ''),
  place    text not null check (place <> ''), -- the page that it is about
  reason   text not null check (reason <> ''),
  digest   bytea not null,                    -- of all that was asked for
  outcome  text check (outcome <> ''),        -- null: not over, or nobody wrote down how it ended
  message  text,                              -- what came of it, in plain words
  ended_at timestamptz,
  check ((outcome is null) = (ended_at is null) and (outcome is null) = (message is null))
);

-- Who shares a provider's cap. A row is what one worker may use of it until its time runs out; workers check in for one
-- provider one after the other, so that the live rows never add up to more than the cap. Kinds without a cap have none.
create table if not exists settle.workers (
  provider  text not null,
  id        uuid not null,                    -- one run of an engine
  rate      int  not null check (rate >= 0),    -- parts of the requests per second
  flights   int  not null check (flights >= 0), -- requests in flight
  joined_at timestamptz not null default clock_timestamp(),
  seen_at   timestamptz not null default clock_timestamp(),
  until     timestamptz not null,
  primary key (provider, id)
);

-- What workers came to, by kind and minute: each adds what it has counted every ten seconds. For charts: what a worker counted
-- last is lost when it is killed, and may be there twice when the answer to a commit was lost. Kept for a day and an hour.
create table if not exists settle.tallies (
  kind         text not null,
  minute       timestamptz not null,
  finished     bigint not null default 0,
  failed       bigint not null default 0,
  needs_review bigint not null default 0,
  unknown      bigint not null default 0,
  duplicates   bigint not null default 0,       -- deliveries that were stopped
  seen_at      timestamptz not null,            -- when a worker of the kind last added
  recovered_at timestamptz,                     -- when recovery of the kind last chose among the due tasks
  breaker_at   timestamptz,                     -- when a worker last said that the breaker of the kind's provider is open
  primary key (kind, minute)
) with (fillfactor = 70);

-- What a person is told, one row per cause: a thousand tasks parked for one reason are one alert. Raising it again counts;
-- it is told when it is new, and again after an hour. Workers share the telling: whoever takes a row that is due tells it.
create table if not exists settle.alerts (
  cause         text primary key check (octet_length(cause) between 1 and 1024), -- 'needs_review payment.charge absent'
  kind          text not null default '',
  text          text not null,            -- in plain words, with what to do
  task_id       bigint,                   -- the latest example
  count         bigint not null,          -- since first_at; after a quiet day it begins anew
  first_at      timestamptz not null default clock_timestamp(),
  last_at       timestamptz not null default clock_timestamp(),
  due           boolean not null default true, -- to be told
  telling_until timestamptz,              -- somebody is at it
  told_at       timestamptz
);

-- The fence as an exception: a statement that matched no row must roll back everything that rides with it.
create or replace function settle.fence(held boolean, task bigint) returns boolean
language plpgsql immutable as $$
begin
  if held is not true then
    raise exception 'settle: the task is no longer held by this attempt'
      using errcode = 'ST001', detail = task::text;
  end if;
  return true;
end $$;

-- ---------------------------------------------------------------------------------------------------
-- shop: the reference handlers' local rows

create schema if not exists shop;

create table if not exists shop.orders (
  order_id    text primary key,
  customer_id text not null,
  amount      numeric not null check (amount >= 0),
  currency    text not null,
  status      text not null default 'pending' check (status in ('pending', 'paid', 'declined')),
  charge_id   text,
  created_at  timestamptz not null default clock_timestamp(),
  updated_at  timestamptz not null default clock_timestamp()
);

-- One row per charge that was booked; the task is who booked it.
create table if not exists shop.payments (
  charge_id   text primary key,
  order_id    text not null references shop.orders (order_id),
  amount      numeric not null,
  currency    text not null,
  task_id     bigint not null,
  created_at  timestamptz not null default clock_timestamp()
);

-- One row per order that has a receipt: the follow-up of a charge.
create table if not exists shop.receipts (
  order_id    text primary key,
  charge_id   text not null,
  task_id     bigint not null,
  created_at  timestamptz not null default clock_timestamp()
);

-- One row per contact of the source. Its row lock is the guard under which the order of its events is decided.
create table if not exists shop.contacts (
  id               bigint generated always as identity primary key,
  source_id        text not null unique,   -- the contact's id at the source
  version          bigint,                 -- of the event that the row shows; one of version and updated_at is there
  updated_at       timestamptz,            -- the same, cut to microseconds: for people and reports
  updated_at_exact text,                   -- as the source wrote it: what events are compared by
  name             text not null,
  email            text not null,
  checksum         text not null,          -- of all that the event says about the contact
  task_id          bigint not null,        -- the task of that event
  created_at       timestamptz not null default clock_timestamp(),
  changed_at       timestamptz not null default clock_timestamp(),
  constraint contacts_have_an_edition check (version is not null or updated_at_exact is not null)
);

-- What became of each event of the source. Append-only, one row per task, written with the contact: repeats of an
-- event are counted on its task (settle.tasks.duplicates), and an event that nobody could compare waits there.
create table if not exists shop.import_events (
  id                      bigint generated always as identity primary key,
  source_id               text not null,
  event_id                text,            -- null: the source gives its events no ids
  source_version          bigint,
  source_updated_at       timestamptz,     -- cut to microseconds
  source_updated_at_exact text,
  checksum                text not null,
  result                  text not null check (result in ('imported', 'stale', 'duplicate', 'tie')),
  changed                 boolean not null, -- the contact took what the event says; of a tie, the greater checksum does
  attempt                 int not null,    -- the attempt of the task that did it: more than 1 means that it was retried
  contact_id              bigint not null references shop.contacts (id),
  task_id                 bigint not null,
  idx                     int not null default 0, -- of the record in its batch
  at                      timestamptz not null default clock_timestamp(),
  constraint import_events_once unique (task_id, idx)
);
create index if not exists import_events_of_source on shop.import_events (source_id, id);

-- What became of each record of a batch so far.
create or replace view shop.import_progress as
select substr(t.key, length('crm_batch_') + 1) as batch_id, s.idx, s.outcome as result, s.reason, s.at
from settle.steps s join settle.tasks t on t.id = s.task_id
where t.kind = 'contacts.import';

-- ---------------------------------------------------------------------------------------------------
-- provider: the stand-in provider

create schema if not exists provider;

-- One row per request to the API, committed on receipt and thus before anything can go wrong: W is counted here,
-- whether or not an answer left or anyone was still there to read it.
create table if not exists provider.requests (
  id     bigint generated always as identity primary key,
  key    text,                            -- Idempotency-Key as sent, or the key that a look-up asked for
  method text not null,
  path   text,
  status int,                             -- what was answered; null: nothing, or not yet
  at     timestamptz not null default clock_timestamp()
);
create index if not exists requests_of_key on provider.requests (key) where key is not null;

-- What the provider made. Two columns hold the key: idempotency_key is what the client sent and stays for look-ups;
-- dedup_key is what refuses a second row, and is null where there was no key, keys are ignored, or it is forgotten.
create table if not exists provider.reports (
  id              bigint generated always as identity primary key, -- the order in which they were made
  report_id       text not null unique,
  idempotency_key text,
  dedup_key       text unique,
  payload_hash    bytea not null,         -- over the decoded content
  task_id         numeric not null,
  report_type     text not null,
  status          text not null check (status in ('ready', 'failed')), -- once ready_at has passed; pending until then
  ready_at        timestamptz not null default clock_timestamp(),
  visible_at      timestamptz not null default clock_timestamp(),      -- look-ups by key do not find it before
  created_at      timestamptz not null default clock_timestamp()
);
create index if not exists reports_of_key on provider.reports (idempotency_key) where idempotency_key is not null;

create table if not exists provider.charges (
  id              bigint generated always as identity primary key,
  charge_id       text not null unique,
  idempotency_key text,
  dedup_key       text unique,
  payload_hash    bytea not null,
  order_id        text not null,
  customer_id     text not null,
  amount          text not null check (octet_length(amount) between 1 and 32), -- the digits as they came
  currency        text not null,
  status          text not null check (status in ('succeeded', 'declined')),   -- a declined charge moved no money
  ready_at        timestamptz not null default clock_timestamp(),
  visible_at      timestamptz not null default clock_timestamp(),
  created_at      timestamptz not null default clock_timestamp()
);
create index if not exists charges_of_key on provider.charges (idempotency_key) where idempotency_key is not null;

-- ---------------------------------------------------------------------------------------------------

insert into settle.schema_version (version, usable_from) values (1, 1)
on conflict (only_row) do update set version = excluded.version, usable_from = excluded.usable_from, applied_at = clock_timestamp()
where settle.schema_version.version < excluded.version;
