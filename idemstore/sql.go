package idemstore

import "strings"

// The SQL of claims, saves and leases. What only people and their commands run stands in search.go, refusals.go,
// archive.go and drift.go. Each statement begins with a comment that names it, so that it can be told apart in
// pg_stat_activity and in server logs.
//
// Three rules hold in all of them:
//
//   - The fence is in the statement: id, attempt number, token and status started.
//   - Rows are locked first, in a materialized step ("held"), and judged as that step read them: the rest of the
//     statement would still see them as they were before a wait for the lock. Every comparison with the clock
//     uses clock_timestamp() afterwards; now() is the start of the transaction.
//   - Durations are bigint microseconds, so that the statements work in every exec mode of the driver.

// beginTx names the isolation level, because the claim relies on each statement seeing what committed before it.
const beginTx = `begin isolation level read committed`

const commitTx = `commit`

// guardTx bounds the wait for a lock ($1, milliseconds) and refuses a commit that could be forgotten: weaker
// settings of synchronous_commit are raised to on, stronger ones are kept. It also makes the statements on the task
// tables be planned once and for look-ups by key, see planForKeys.
const guardTx = `/* settle:guard */
select set_config('lock_timeout', $1, true), ` + durable + `, ` + planForKeys

const durable = `set_config('synchronous_commit',
         case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then 'on'
              else current_setting('synchronous_commit') end, true)`

// planForKeys holds for our own statements, which touch a handful of rows by key however large the table is. Left
// alone the planner takes a short array for cheaper than the generic plan and plans each statement anew, which costs
// more than running it; or it keeps a plan that it made while the table was empty, which reads the whole of it.
const planForKeys = `set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`

// planFreely gives a handler's statements the planner's defaults, but for jit: a server may have that off.
const planFreely = `/* settle:plan-freely */
select set_config('plan_cache_mode', 'auto', true), set_config('enable_seqscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`

// planAgain is for the save after a handler's statements.
const planAgain = `/* settle:plan-again */ select ` + planForKeys

// waitShortly bounds how long a group of local jobs waits for a lock: about as long as another group takes.
const waitShortly = `/* settle:wait-shortly */ select set_config('lock_timeout', '50', true)`

// beginApply opens the transaction of a local job, with the settings of guardTx (%[1]s, milliseconds) and a limit for each
// statement and each pause between two (%[2]d, milliseconds): the server ends the session of a process that was frozen
// while it held the row. Literals, so that it is one round trip; both are numbers of ours.
const beginApply = beginTx + `; /* settle:guard-apply */
select set_config('lock_timeout', '%[1]s', true),
       set_config('idle_in_transaction_session_timeout', '%[2]d', true), set_config('statement_timeout', '%[2]d', true),
       ` + durable + `, ` + planForKeys

// claimInsert claims keys of one kind that nobody has yet: insert, and let the unique constraint refuse the duplicate.
// A row that it makes is attempt 1, performing, with its lease running; it is answered by its id and token. A local
// job sends nothing, so a crash of its attempt leaves nothing to ask about.
//
// The rows come in the order of their keys, in which all sessions wait for one another. What all claims of a kind have
// in common is no array, and arrays without any value are null, which unnest fills up: each costs for every row.
const claimInsert = `/* settle:claim-insert */
insert into settle.tasks (kind, key, status, token, sending, payload, payload_hash, hash_algorithm,
  provider, provider_key, stream, stream_sequence, stored_at, reply_subject, origin_trace, last_trace,
  event_id, event_source, lease_until, first_sent_at, give_up_at)
select $1::text, key, 'started', token, not $2::boolean, payload, hash, $3::text,
  $4::text, provider_key, $5::text, sequence, stored, coalesce(reply, ''), coalesce(origin_trace, ''), coalesce(trace, ''),
  nullif(event_id, ''), nullif(event_source, ''), clock_timestamp() + $6::bigint * interval '1 microsecond', case when not $2::boolean then clock_timestamp() end,
  clock_timestamp() + $7::bigint * interval '1 microsecond'
from unnest($8::text[], $9::uuid[], $10::bytea[], $11::bytea[], $12::text[], $13::bigint[], $14::timestamptz[],
            $15::text[], $16::text[], $17::text[], $18::text[], $19::text[])
  as u(key, token, payload, hash, provider_key, sequence, stored, reply, origin_trace, trace, event_id, event_source)
on conflict (kind, key) do nothing
returning id, token`

// claimRefs adds the search terms of the rows that carry a token of this claim.
const claimRefs = `/* settle:claim-refs */
insert into settle.task_refs (name, value, task_id)
select r.name, r.value, t.id
from unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[]) as r(kind, key, token, name, value)
  join settle.tasks t on t.kind = r.kind and t.key = r.key and t.token = r.token
on conflict do nothing`

// claimAnswer answers repeats of what is over, most of all that come: the line "final" of the claim table, where the hash is
// the same. It is there because it does that in less time than claimDecide, which decides the rest.
var claimAnswer = `/* settle:claim-answer */
with held as materialized (
  select w.n, t.id
  from unnest($1::text[], $2::text[], $3::uuid[], $4::bytea[], $5::text[]) with ordinality as w(kind, key, token, hash, algorithm, n)
    join settle.tasks t on t.kind = w.kind and t.key = w.key
  where t.status in ('finished', 'failed') and t.payload_hash = w.hash and t.hash_algorithm = w.algorithm and t.token <> w.token
  order by t.kind, t.key
  for update of t skip locked
)
update settle.tasks t set duplicates = t.duplicates + 1, last_duplicate_at = clock_timestamp()
from held h
where t.id = h.id
returning h.n, 'final', t.last_trace, null::bigint,
  ` + ages(`t`) + `,
  ` + claimedColumns(`t`, `false`, `true`)

// claimDecide is the second half of a claim: lock the rows that were there already, in key order, and decide
// each by the claim table (see the package comment of consumer; decide.go there holds the same table, and a
// test compares the two on every combination). A later statement of the same transaction, so that it sees
// whatever made the insert do nothing. A row that it does not answer for is locked by somebody.
//
// A recovery has no message: there is no content to compare, and a row that is final or parked is left as it is.
//
// Where a row was changed after the statement began, the server first makes the new one of what the row was then, checks
// its constraints, and only then comes back with the one that is locked here: what a repeat leaves alone, it must not set.
var claimDecide = `/* settle:claim-decide */
with want as (
  select *
  from unnest($1::text[], $2::text[], $3::uuid[], $4::bytea[], $5::text[], $6::bytea[],
              $7::text[], $8::bigint[], $9::timestamptz[], $10::text[], $11::text[], $12::text[],
              $13::bigint[], $14::int[], $15::boolean[], $16::boolean[], $17::text[], $18::text[])
    with ordinality as u(kind, key, token, hash, algorithm, payload,
         stream, sequence, stored, provider, provider_key, trace, lease, max_failures, local, recovery, actor, note, n)
), held as materialized (
  select w.*, t as task
  from want w join settle.tasks t on t.kind = w.kind and t.key = w.key
  where t.token <> w.token
  order by t.kind, t.key
  for update of t skip locked
), facts as materialized (
  select h.*,
    (h.task).hash_algorithm = h.algorithm as known_algorithm,
    (h.task).payload_hash = h.hash as same_hash,
    h.recovery or case when (h.task).archived_at is null then (h.task).payload = h.payload
                       else (h.task).payload_digest = sha256(h.payload) end as same_bytes,
    h.stream <> '' and (h.task).stream = h.stream and (h.task).stream_sequence = h.sequence
      and (h.task).stored_at is not distinct from h.stored as same_message,
    coalesce((h.task).lease_until > c.at and (h.task).lease_until <= c.at + interval '1 day', false) as live,
    coalesce((h.task).lease_until <= c.at, false) as expired,
    (h.task).next_attempt_at > c.at as early,
    (h.task).give_up_at <= c.at as too_old,
    c.at
  from held h cross join lateral (select clock_timestamp() + h.n * interval '0') as c(at)
), decided as materialized (
  select f.*,
    case
      when not known_algorithm and not same_bytes then 'incomparable'
      when known_algorithm and not same_hash and not same_message and not same_bytes then 'conflicting'
      when (task).status in ('finished', 'failed') then 'final'
      when (task).status = 'needs_review' then 'parked'
      when live then 'busy'
      when early then 'not due'
      when too_old or (task).failures + expired::int >= max_failures then 'spent'
      when expired and ((task).sending or (task).unsure) then 'ask'
      when expired then 'perform'
      when (task).status = 'started' and (task).lease_until is null
        and not (task).unsure and not (task).sending and (task).first_sent_at is null then 'perform'
      else 'ask'
    end as found
  from facts f
), changed as (
  update settle.tasks t set
    status = case d.found when 'spent' then 'needs_review' when 'ask' then 'started' when 'perform' then 'started'
             else t.status end,
    attempts = t.attempts + d.takes::int,
    token = case when d.takes then d.token else t.token end,
    failures = t.failures + (d.takes and d.expired)::int,
    unsure = t.unsure or d.found = 'ask' or (d.found = 'spent' and (t.sending or t.status = 'unknown')),
    sending = case when d.takes then d.found = 'perform' and not d.local else t.sending end,
    lease_until = case when d.found in ('ask', 'perform') then clock_timestamp() + d.lease * interval '1 microsecond'
                       when not d.takes then t.lease_until end,
    finished_at = case when not d.takes then t.finished_at end,
    first_sent_at = case when d.found = 'perform' and not d.local
      then coalesce(t.first_sent_at, clock_timestamp()) else t.first_sent_at end,
    last_sent_by = case when d.takes and t.sending
      then greatest(t.last_sent_by, case when d.expired then t.lease_until else d.at end) else t.last_sent_by end,
    provider = case when d.found = 'perform' and t.first_sent_at is null then d.provider else t.provider end,
    provider_key = case when d.found = 'perform' and t.first_sent_at is null then d.provider_key else t.provider_key end,
    duplicates = t.duplicates + (not d.takes)::int,
    last_duplicate_at = case when d.takes then t.last_duplicate_at else clock_timestamp() end,
    last_trace = case when not d.takes then t.last_trace
                      when t.last_trace like '%-01' and d.trace like '%-00' then left(d.trace, -2) || '01' -- a story that is kept stays so
                      else d.trace end,
    review_cause = case when not d.takes then t.review_cause
                        when d.found = 'spent' then case when d.too_old then 'age' else 'budget' end end,
    updated_at = case when d.takes then clock_timestamp() else t.updated_at end
  from (select *, found in ('spent', 'ask', 'perform') as takes from decided) d
  where t.id = (d.task).id and (d.takes or d.found in ('final', 'parked') and not d.recovery)
  returning d.n, d.found, d.expired, d.too_old, d.actor, d.note, d.sequence, d.stream, (d.task).status as old_status, (d.task).last_trace as old_trace, t as task
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, trace_id)
  select (c.task).id, c.actor, (c.task).attempts, c.old_status, (c.task).status,
    case when c.found = 'spent' and c.too_old then 'parked: not settled within its age limit'
         when c.found = 'spent' then format('parked: %s failures, the budget is used up', (c.task).failures)
         when c.expired then format('taken over: the lease of attempt %s ran out', (c.task).attempts - 1)
         else 'taken up without its message' end || case when c.note <> '' then '; ' || c.note else '' end,
    split_part((c.task).last_trace, '-', 2)
  from changed c where c.found = 'spent' or c.found in ('ask', 'perform') and (c.expired or c.note <> '')
), parked as (
  -- One line per message that arrives while a person is asked, and not more than twenty.
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason)
  select (c.task).id, 'worker', (c.task).attempts, 'needs_review', 'needs_review', p.reason
  from changed c
    cross join lateral (select format('message %s of stream %s came while a person is asked', c.sequence, c.stream)) as p(reason)
  where c.found = 'parked'
    and not exists (select from settle.task_events e where e.task_id = (c.task).id and e.reason = p.reason)
    and (select count(*) from settle.task_events e
         where e.task_id = (c.task).id and e.reason like 'message % came while a person is asked') < 20
), answers as (
  select n, found, old_trace, task from changed
  union all
  select n, found, '', task from decided
  where found not in ('spent', 'ask', 'perform') and (recovery or found not in ('final', 'parked'))
  union all
  select w.n, ` + ownClaim + `, '', t from settle.tasks t join want w on t.kind = w.kind and t.key = w.key and t.token = w.token
)
select a.n, a.found, coalesce(a.old_trace, ''),
  case a.found when 'busy' then ` + microseconds(`(a.task).lease_until - clock_timestamp()`) + `
               when 'not due' then ` + microseconds(`(a.task).next_attempt_at - clock_timestamp()`) + ` end,
  ` + ages(`(a.task)`) + `,
  ` + claimedColumns(`(a.task)`, `a.found in ('ask', 'perform')`, `a.found in ('final', 'parked')`) + `
from answers a`

// ownClaim names what a claim found whose token is on row t: the insert of this transaction, or a claim that was
// committed before although its answer was lost. So a claim may be repeated with its token. A local attempt never
// sends; for it 'ask' and 'perform' are the same.
const ownClaim = `case when t.status = 'needs_review' then 'spent' when t.status <> 'started' or t.lease_until is null then 'locked'
            when t.attempts = 1 then 'inserted' when not t.sending then 'ask' else 'perform' end`

// claimedColumns are what a claim gives back of a row: payloads only to those who perform or ask (who inserts has it),
// results only to those who replay. A result is read where it is; the function looks with a snapshot of its own: the
// statement's may be older than the archiving of a row that it then locked.
func claimedColumns(row, payload, result string) string {
	return strings.ReplaceAll(`@.id, @.kind, @.key, @.attempts, @.token, @.status,
  @.sending, @.unsure, @.evidence_id, @.external_id, @.failures, @.resend_once,
  @.provider, @.provider_key, @.payload_hash, @.hash_algorithm,
  case when `+payload+` then @.payload end,
  case when `+result+` then case when @.archived_at is null then @.result else settle.archived_result(@.id) end end,
  @.last_error, @.review_cause, @.reply_subject, @.origin_trace, @.stream, @.stream_sequence`, "@", row)
}

// claimReread looks for a claim whose COMMIT was not answered: $1 kind, $2 key, $3 token. The token says whose
// the claim is; the number could be another's. A row still started by this token is our attempt.
var claimReread = `/* settle:claim-reread */
select 1, ` + ownClaim + `, '', null,
  ` + ages(`(a.task)`) + `,
  ` + claimedColumns(`(a.task)`, `t.status = 'started'`, `false`) + `
from settle.tasks t cross join lateral (select t as task) a
where t.kind = $1 and t.key = $2 and t.token = $3`

// renew extends leases that are still running. Rows that are locked are skipped, so that one save in progress
// does not hold up all others: an absent number is not confirmed, which is not the same as lost.
const renew = `/* settle:renew */
with held as materialized (
  select t.id, t.status, t.lease_until, w.lease, w.n
  from settle.tasks t
  join unnest($1::bigint[], $2::int[], $3::uuid[], $4::bigint[]) with ordinality as w(id, attempt, token, lease, n)
    on t.id = w.id and t.attempts = w.attempt and t.token = w.token
  order by t.id
  for update of t skip locked
)
update settle.tasks t
set lease_until = clock_timestamp() + h.lease * interval '1 microsecond', updated_at = clock_timestamp()
from held h
where t.id = h.id and h.status = 'started' and h.lease_until > clock_timestamp()
returning h.n`

// arm confirms the lease once more and turns an attempt that asked into one that may send. It demands that
// nothing is known that speaks against a resend, and that the provider's key is young or a resend is permitted.
// $5 usable key lifetime (null: for ever), $6 provider identity, $7 keyed, $8 permitted by the kind, which speaks for its
// provider of today alone, $11 decided by the key: a permission is for what was absent twice and settled, which then nobody
// has looked for.
// It returns how long the resend may rest on the key's age (null: it does not).
var arm = `/* settle:arm */
with held as materialized (
  select t.* from settle.tasks t where t.id = $1 for update of t
), armed as (
  update settle.tasks t set sending = true, absent_at = null, resend_once = false,
    lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond', updated_at = clock_timestamp(),
    first_sent_at = coalesce(t.first_sent_at, clock_timestamp())
  from held h cross join lateral (
    select $7::boolean and h.provider = $6 and h.first_sent_at is not null
      and ($5::bigint is null or clock_timestamp() < h.first_sent_at + $5::bigint * interval '1 microsecond') as young) y
  where t.id = h.id and h.attempts = $2 and h.token = $3 and h.status = 'started' and h.lease_until > clock_timestamp()
    and h.evidence_id is null and h.external_id is null
    and (y.young or not $11::boolean and ($8::boolean and h.provider in ('', $6) or h.resend_once))
  returning t.id, t.attempts, t.last_trace, y.young,
    case when y.young and not $8::boolean and $5::bigint is not null then greatest(1, ` +
	microseconds(`h.first_sent_at + $5::bigint * interval '1 microsecond' - clock_timestamp()`) + `) end as key_rest
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, trace_id)
  select id, $10::text, attempts, 'started', 'started', $9, split_part(last_trace, '-', 2) from armed
)
select key_rest from armed`

// save commits the outcomes of attempts. It comes first in its transaction and raises (SQLSTATE ST001) if any of the
// attempts is not current any more, or brings a second id, so that a stale attempt's local rows, which ride in the same
// transaction, are rolled back with it. Late proof beside an attempt that sends came in while it did (arm): its own
// answer settles nothing unless it names the same id.
var save = `/* settle:save */
with want as (
  select *
  from unnest($1::bigint[], $2::int[], $3::uuid[], $4::boolean[], $5::text[], $6::boolean[], $7::text[],
              $8::text[], $9::boolean[], $10::int[], $11::text[], $12::text[], $13::text[], $14::text[],
              $15::boolean[], $16::boolean[], $17::int[], $18::int[], $19::bigint[], $20::bigint[],
              $21::bigint[], $22::text[], $23::text[], $24::text[], $25::text[])
    with ordinality as u(id, attempt, token, strict, status, applied, external_id,
         result, altered, provider_status, answer, last_error, error_class, evidence_id,
         absent_now, clear_absent, cost, max_failures, delay, settle,
         retention, reason, trace, cause, actor, n)
), held as materialized (
  select w.*, t as task from want w join settle.tasks t on t.id = w.id order by t.id for update of t
), changed as (
  update settle.tasks t set
    status = s.status,
    external_id = coalesce(t.external_id, h.external_id, case when t.evidence_id <> h.evidence_id then h.evidence_id end),
    unsure = case when s.status in ('finished', 'failed') then t.unsure
                  when s.status = 'unknown' or h.status = 'unknown' then true
                  else t.unsure or h.applied or coalesce(t.external_id, h.external_id, h.evidence_id) is not null end,
    first_sent_at = case when s.status = 'needs_review' and h.status <> 'unknown' and not t.unsure and not h.applied
                         then null else t.first_sent_at end,
    last_sent_by = case when t.sending then clock_timestamp() else t.last_sent_by end,
    sending = false, lease_until = null,
    absent_at = case when h.clear_absent then null when h.absent_now then coalesce(t.absent_at, clock_timestamp())
                     else t.absent_at end,
    evidence_id = coalesce(t.evidence_id, h.evidence_id),
    failures = t.failures + h.cost,
    next_attempt_at = least(case when s.status = 'unknown' then greatest(t.give_up_at, clock_timestamp()) end, -- then a person is called
      greatest(clock_timestamp() + h.delay * interval '1 microsecond',
        case when t.sending then clock_timestamp() else t.last_sent_by end + h.settle * interval '1 microsecond')),
    result = coalesce(h.result, t.result), result_altered = t.result_altered or h.altered,
    provider_status = coalesce(h.provider_status, t.provider_status), answer = coalesce(h.answer, t.answer),
    last_error = coalesce(h.last_error, t.last_error), error_class = coalesce(h.error_class, t.error_class),
    review_cause = case when s.status <> 'needs_review' then null when h.status <> 'unknown' then h.cause
                        when t.give_up_at <= clock_timestamp() then 'age' else 'budget' end,
    last_trace = coalesce(nullif(h.trace, ''), t.last_trace), -- the same, but for its flags
    updated_at = clock_timestamp(),
    finished_at = case when s.status in ('finished', 'failed') then clock_timestamp() end,
    expires_at = case when s.status in ('finished', 'failed')
                      then clock_timestamp() + h.retention * interval '1 microsecond' end
  from held h
    cross join lateral (
      select case when h.status = 'unknown' and ((h.task).failures + h.cost >= h.max_failures or (h.task).give_up_at <= clock_timestamp())
                  then 'needs_review' else h.status end) as s(status)
  where t.id = h.id and (h.task).attempts = h.attempt and (h.task).token = h.token and (h.task).status = 'started'
    and (not h.strict or (h.task).lease_until > clock_timestamp())
    and (h.external_id is null or (h.task).external_id is null or (h.task).external_id = h.external_id)
    and (s.status not in ('finished', 'failed') or (h.task).evidence_id is null or (h.task).evidence_id = h.external_id
         or h.external_id is null and not (h.task).sending)
  returning h.n, t.id, t.status, t.review_cause, t.attempts, t.failures, t.external_id,
    ` + microseconds(`t.next_attempt_at - clock_timestamp()`) + ` as wait, h.status as asked, h.reason, h.trace, h.actor
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, external_id, trace_id)
  select id, actor, attempts, 'started', status,
    case when asked = 'unknown' and status = 'needs_review' then reason || '; parked: budget or age limit used up'
         else reason end, external_id, split_part(trace, '-', 2)
  from changed where reason is not null
), searchable as (
  insert into settle.task_refs (name, value, task_id)
  select 'external_id', external_id, id from changed
  where external_id is not null and octet_length(external_id) <= 512
  on conflict do nothing
)
select settle.fence((select count(*) from changed) = (select count(*) from want), (select min(id) from want)),
  c.status, coalesce(c.review_cause, ''), c.failures, c.wait
from (values (1)) as one left join changed c on true
order by c.n`

// saveFinal is save for outcomes that are final, leave no audit line and change nothing but the answer: the row is judged
// and changed in one step. That step sees the row as it is once its lock is got; what it would not see is how late it
// has become meanwhile, so attempts under the strict policy, whose lease counts, are saved by the statement above. The
// status is compared with a sub-select, because with the word itself the planner would, after an ANALYZE at a quiet
// moment, read the whole index tasks_open for each group.
const saveFinal = `/* settle:save-final */
with changed as (
  update settle.tasks t set
    status = w.status, external_id = coalesce(t.external_id, nullif(w.external_id, '')),
    last_sent_by = case when t.sending then clock_timestamp() else t.last_sent_by end, sending = false, lease_until = null,
    result = coalesce(nullif(w.result, ''), t.result), result_altered = t.result_altered or coalesce(w.altered, false),
    provider_status = coalesce(nullif(w.provider_status, 0), t.provider_status),
    answer = coalesce(nullif(w.answer, ''), t.answer),
    last_error = coalesce(nullif(w.last_error, ''), t.last_error),
    error_class = coalesce(nullif(w.error_class, ''), t.error_class),
    updated_at = clock_timestamp(), finished_at = clock_timestamp(),
    expires_at = clock_timestamp() + w.retention * interval '1 microsecond'
  from unnest($1::bigint[], $2::int[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::int[], $9::text[],
              $10::text[], $11::text[], $12::bigint[])
    with ordinality as w(id, attempt, token, status, external_id, result, altered, provider_status, answer,
      last_error, error_class, retention, n)
  where t.id = w.id and t.attempts = w.attempt and t.token = w.token and t.status = (select 'started'::text)
    and (coalesce(w.external_id, '') = '' or t.external_id is null or t.external_id = w.external_id)
    and (t.evidence_id is null or t.evidence_id = w.external_id or coalesce(w.external_id, '') = '' and not t.sending)
  returning w.n, t.id, t.external_id, t.failures
), searchable as (
  insert into settle.task_refs (name, value, task_id)
  select 'external_id', external_id, id from changed
  where octet_length(external_id) <= 512
  on conflict do nothing
)
select settle.fence(count(*) = cardinality($1::bigint[]), ($1::bigint[])[1]), array_agg(failures order by n) from changed`

// saveExternalID stores the provider's id before anything else is done ($1 id, $2 attempt, $3 token, $4 external
// id). An attempt that has lost the task, or brings a second id, leaves it as evidence instead: the status is
// not its to change, but whoever sends next must look at it. It returns whether the id was stored.
const saveExternalID = `/* settle:save-external-id */
with held as materialized (
  select t.* from settle.tasks t where t.id = $1 for update of t
), stored as (
  update settle.tasks t set external_id = $4, unsure = true, updated_at = clock_timestamp()
  from held h
  where t.id = h.id and h.attempts = $2 and h.token = $3 and h.status = 'started' and h.lease_until is not null
    and (h.external_id is null or h.external_id = $4)
  returning t.id
), proof as (
  update settle.tasks t set evidence_id = coalesce(t.evidence_id, $4),
    unsure = t.unsure or t.status not in ('finished', 'failed'),
    status = case when t.status = 'started' and t.lease_until is null then 'unknown' else t.status end,
    updated_at = clock_timestamp()
  from held h
  where t.id = h.id and not exists (select from stored)
    and h.external_id is distinct from $4 and h.evidence_id is distinct from $4
  returning t.id, h.status as old_status, t.status
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, external_id, trace_id)
  select id, 'worker', $2, old_status, status, 'late proof from an attempt that does not hold the task', $4, $5
  from proof
), searchable as (
  insert into settle.task_refs (name, value, task_id)
  select 'external_id', $4, id from (select id from stored union all select id from proof) as x
  where octet_length($4) <= 512
  on conflict do nothing
)
select exists (select from stored), exists (select from settle.tasks where id = $1)`

// release gives a task back that this attempt did not touch. A row whose earlier attempts may have been applied
// becomes unknown: "not sent" speaks for its own attempt only.
// $9 is added to the failures: a local job that fails has changed nothing and yet must not fail for ever. $10 is the actor.
const release = `/* settle:release */
with held as materialized (
  select t.* from settle.tasks t where t.id = $1 for update of t
), released as (
  update settle.tasks t set
    status = case when t.unsure then 'unknown' else 'started' end,
    lease_until = null, sending = false, failures = t.failures + $9::int,
    first_sent_at = case when t.unsure then t.first_sent_at end,
    next_attempt_at = clock_timestamp() + $4::bigint * interval '1 microsecond',
    last_error = coalesce($5, t.last_error), error_class = coalesce($6, t.error_class),
    updated_at = clock_timestamp()
  from held h
  where t.id = h.id and h.attempts = $2 and h.token = $3 and h.status = 'started' and h.lease_until is not null
  returning t.id, t.status, t.attempts
), noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, trace_id)
  select id, $10::text, attempts, 'started', status, $7::text, $8::text from released where $7 is not null
)
select status from released`

// holdRow takes the row of an attempt until the end of the transaction, and raises unless it is current.
const holdRow = `/* settle:hold */
with held as materialized (
  select t.id from settle.tasks t where t.id = $1 and t.attempts = $2 and t.token = $3 and t.status = 'started' for update of t
)
select settle.fence(exists (select from held), $1)`

// refuse keeps a message that was not accepted. A redelivery of it adds no second line.
const refuse = `/* settle:refuse */
insert into settle.refusals (kind, key, reason, detail, stream, sequence, stored_at, subject, headers,
                             body, body_size, cut, digest, task_id)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
on conflict (stream, sequence, stored_at, digest) do nothing`

// nobodyHolds is a started row without an attempt that could still act: no lease, one that ran out, or one that no
// attempt can have made. The clock is read once, before a row is looked at: this only chooses, and the claim decides.
const nobodyHolds = `(t.lease_until is null or t.lease_until <= (select clock_timestamp())
    or t.lease_until > (select clock_timestamp()) + interval '1 day')`

// planInOrder is for a page of an index: left alone the planner would rather read and sort the whole of it for each page.
const planInOrder = `/* settle:plan-in-order */ select set_config('enable_sort', 'off', true)`

// due chooses tasks for recovery: $1 kind, $2 and $3 after this due time and id, $4 due by then (null: by now), $5 how
// many. Oldest first, and paged by what it is ordered by, so that a row that cannot be claimed never hides the rest.
const due = `/* settle:due */
select t.id, t.attempts, t.token, t.kind, t.key, t.status, t.lease_until, t.origin_trace, t.next_attempt_at,
  (select coalesce($4::timestamptz, clock_timestamp()))
from settle.tasks t
where t.kind = $1 and t.status in ('started', 'unknown') and ` + nobodyHolds + `
  and t.next_attempt_at <= (select coalesce($4::timestamptz, clock_timestamp()))
  and (t.next_attempt_at, t.id) > ($2::timestamptz, $3::bigint)
order by t.next_attempt_at, t.id limit $5
for no key update of t skip locked`

// takeParked chooses tasks that wait for a person only because budget or age is used up, and puts off the next time by
// $3 microseconds in the same statement, so that of two recoverers only one asks. $1 kind, $2 one task or null, $4 how many.
const takeParked = `/* settle:take-parked */
with chosen as materialized (
  select t.id from settle.tasks t
  where t.kind = $1 and t.status = 'needs_review' and t.review_cause in ('budget', 'age')
    and ($2::bigint is null or t.id = $2) and t.next_attempt_at <= (select clock_timestamp())
  order by t.next_attempt_at, t.id limit $4
  for update of t skip locked
)
update settle.tasks t set next_attempt_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
from chosen c where t.id = c.id
returning ` + taskColumns

// recoverable lists what a recovery by hand is about: tasks of the kinds $1 that are not final, and of the kinds $2, which can
// be asked about, also those that are parked by budget or age. Created at least $3 and at most $4 microseconds ago; $5
// how many. It locks nothing and changes nothing.
const recoverable = `/* settle:recoverable */
select clock_timestamp(), ` + taskColumns + `
from settle.tasks t
where (t.kind = any($1::text[]) and t.status in ('started', 'unknown')
    or t.kind = any($2::text[]) and t.status = 'needs_review' and t.review_cause in ('budget', 'age'))
  and t.created_at <= (select clock_timestamp()) - $3::bigint * interval '1 microsecond'
  and t.created_at >= (select clock_timestamp()) - $4::bigint * interval '1 microsecond'
order by t.created_at, t.id limit $5`

// lockPrefixes makes checking and adding one step: prefixes are registered only when a worker starts.
const lockPrefixes = `lock table settle.key_prefixes in share row exclusive mode`

// clashingPrefix finds another kind's prefix at the same provider that begins with this one or is its beginning.
const clashingPrefix = `/* settle:clashing-prefix */
select kind, prefix from settle.key_prefixes
where provider = $1 and kind <> $3 and (starts_with(prefix, $2) or starts_with($2, prefix))
order by prefix limit 1`

// ownPrefix registers a plain provider-key prefix of a kind, so that kinds served by other processes count too.
const ownPrefix = `/* settle:own-prefix */
insert into settle.key_prefixes (provider, prefix, kind)
select $1, $2, $3
where not exists (select from settle.key_prefixes
  where provider = $1 and kind <> $3 and (starts_with(prefix, $2) or starts_with($2, prefix)))
on conflict (provider, prefix) do nothing`

// taskColumns are the columns of a Task, in the order of scanTask. The heavy ones of an archived task come from the
// archive: row and archive are read by one statement, so they fit each other.
const taskColumns = leadingColumns + heavyColumns + trailingColumns

// lightColumns leave the heavy columns empty: for lists.
const lightColumns = leadingColumns + `'\x'::bytea, null::text, null::text` + trailingColumns

const (
	leadingColumns = `t.id, t.kind, t.key, t.attempts, t.token, t.status, t.lease_until, t.sending, t.unsure,
  t.first_sent_at, t.last_sent_by, t.absent_at, t.evidence_id, t.external_id, t.failures, t.next_attempt_at,
  t.give_up_at, t.resend_once, t.provider, t.provider_key, t.payload_hash, t.hash_algorithm, `

	heavyColumns = `case when t.archived_at is null then t.payload
    else (select r.payload from settle.tasks_archive r where r.task_id = t.id) end,
  case when t.archived_at is null then t.result
    else (select r.result from settle.tasks_archive r where r.task_id = t.id) end,
  case when t.archived_at is null then t.answer
    else (select r.answer from settle.tasks_archive r where r.task_id = t.id) end`

	trailingColumns = `, t.result_altered, t.provider_status, t.last_error, t.error_class, t.review_cause, t.duplicates, t.stream,
  t.stream_sequence, t.stored_at, coalesce(t.event_id, ''), coalesce(t.event_source, ''), t.reply_subject, t.origin_trace, t.last_trace, t.created_at, t.updated_at, t.finished_at,
  t.expires_at, t.archived_at,
  coalesce(t.lease_until > clock_timestamp() and t.lease_until <= clock_timestamp() + interval '1 day', false)`
)

const findByID = `/* settle:find-by-id */ select ` + taskColumns + ` from settle.tasks t where t.id = $1`

const findByKey = `/* settle:find-by-key */ select ` + taskColumns + ` from settle.tasks t where t.kind = $1 and t.key = $2`

// list pages through tasks by id: $1 kind or null, $2 status or null, $3 after this id, $4 limit.
const list = `/* settle:list */ select ` + taskColumns + ` from settle.tasks t
where ($1::text is null or t.kind = $1) and ($2::text is null or t.status = $2) and t.id > $3
order by t.id limit $4`

const events = `/* settle:events */
select at, actor, attempt, coalesce(old_status, ''), coalesce(new_status, ''), reason, coalesce(external_id, ''), trace_id
from settle.task_events where task_id = $1 order by id`

const schemaVersion = `/* settle:schema-version */ select version, usable_from from settle.schema_version`
