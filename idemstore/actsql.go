package idemstore

// The statements of acts: what a person, or recovery for them, does to one task. The rules of sql.go hold, with one
// difference: an act holds no lease, so instead of the fence it compares status and attempts with what was shown, and
// leaves a new number and a new token, after which no attempt of before can change the row any more.
//
// The arguments begin alike: $1 id, $2 status and $3 attempts as shown, $4 new token, $5 actor, $6 reason,
// $7 traceparent.

// actHeld locks the row and reads the clock afterwards. live is a lease that somebody may hold, released a task that is
// known not to be applied; both are as the claim sees them. touched: something may have left, as far as the row can
// tell. bookable: done at the provider, and the result that local rows are made of is here whole. decideAct in package
// consumer has the same conditions, and a test compares the two on every combination.
const actHeld = `read as materialized (
  select t.* from settle.tasks t where t.id = $1 for update of t
), held as materialized (
  select r.*, c.at,
    coalesce(r.lease_until > c.at and r.lease_until <= c.at + interval '1 day', false) as live,
    r.status = 'started' and r.lease_until is null and not r.unsure and not r.sending and r.first_sent_at is null as released,
    r.unsure or r.first_sent_at is not null or r.external_id is not null or r.evidence_id is not null as touched,
    r.review_cause is not distinct from 'not_booked' and r.result is not null and not r.result_altered as bookable
  from read r cross join lateral (select clock_timestamp() + r.id * interval '0') as c(at)
)`

// actShown demands that the row is as the person saw it.
const actShown = `t.id = h.id and h.status = $2 and h.attempts = $3`

// actFence is what every act changes: from here on nobody else's attempt is current.
const actFence = `attempts = t.attempts + 1, token = $4, lease_until = null, sending = false,
    last_trace = coalesce(nullif($7::text, ''), t.last_trace), updated_at = clock_timestamp()`

// actSent keeps what the attempt that is cut off may have sent: its gate lets nothing pass after its lease.
const actSent = `last_sent_by = case when t.sending
      then greatest(t.last_sent_by, case when h.lease_until <= h.at + interval '1 day' then h.lease_until else h.at end)
      else t.last_sent_by end`

// actNoted is the audit line of an act, and what it leaves of the task.
const actNoted = `noted as (
  insert into settle.task_events (task_id, actor, attempt, old_status, new_status, reason, external_id, trace_id)
  select id, $5, attempts, $2, status, $6, external_id, split_part($7::text, '-', 2) from changed
)`

// actDone raises (SQLSTATE ST001) unless the act was done ($1 id, $2 its token), so that local rows and events that
// ride with it are rolled back.
const actDone = `/* settle:act-done */
select settle.fence(exists (select from settle.tasks where id = $1 and token = $2), $1)`

// resolveTask makes a task final by hand: $8 status, $9 external id, $10 result, $11 altered, $12 provider status, $13 answer,
// $14 last error, $15 error class, $16 retention, $17 also over a live lease, $18 only if nothing can have left.
const resolveTask = `/* settle:resolve */
with ` + actHeld + `, changed as (
  update settle.tasks t set ` + actFence + `, ` + actSent + `,
    status = $8, unsure = t.unsure or t.sending, resend_once = false, review_cause = null,
    external_id = coalesce(t.external_id, $9), result = $10, result_altered = $11,
    provider_status = coalesce($12::int, t.provider_status), answer = coalesce($13, t.answer),
    last_error = coalesce($14, t.last_error), error_class = coalesce($15, t.error_class),
    finished_at = clock_timestamp(), expires_at = clock_timestamp() + $16::bigint * interval '1 microsecond'
  from held h
  where ` + actShown + `
    and case when $18::boolean then (h.released or h.status = 'needs_review') and not h.touched
             else h.status in ('unknown', 'needs_review')
               or h.status = 'started' and not h.released and (not h.live or $17::boolean) end
    and ($9::text is null or coalesce(h.external_id, h.evidence_id, $9) = $9)
  returning t.*
), ` + actNoted + `, searchable as (
  insert into settle.task_refs (name, value, task_id)
  select 'external_id', external_id, id from changed where octet_length(external_id) <= 512
  on conflict do nothing
)
select ` + taskColumns + ` from changed t`

// actDue starts a task over: its budget is given back, $8 is its new age limit, and it is due now. Who waited for an answer
// got one when the task was parked or failed.
const actDue = `failures = 0, give_up_at = h.at + $8::bigint * interval '1 microsecond', next_attempt_at = h.at,
    review_cause = null, result = null, result_altered = false, finished_at = null, expires_at = null,
    reply_subject = case when h.status in ('needs_review', 'failed') then '' else t.reply_subject end`

// retryTask lets a task be attempted once more: $9 permits one resend that does not rest on the provider's key. A failed
// task that was never sent anywhere gets the moment as its first send: nothing can have left before.
const retryTask = `/* settle:retry */
with ` + actHeld + `, changed as (
  update settle.tasks t set ` + actFence + `, ` + actDue + `,
    status = case when h.touched or h.status = 'failed' then 'unknown' else 'started' end,
    unsure = h.touched or h.status = 'failed', resend_once = $9,
    first_sent_at = case when h.status = 'failed' and not h.touched then h.at else t.first_sent_at end,
    last_sent_by = case when h.touched or h.status = 'failed' then coalesce(t.last_sent_by, h.at) else t.last_sent_by end
  from held h
  where ` + actShown + `
    and case when $9::boolean then (h.status = 'needs_review' or h.status = 'unknown' and not h.resend_once)
                                   and h.touched and not h.bookable
                                   and h.external_id is null and h.evidence_id is null
             else h.status = 'needs_review' and not h.bookable or h.status = 'failed' and h.archived_at is null end
  returning t.*
), ` + actNoted + `
select ` + taskColumns + ` from changed t`

// supersedeTask gives a task that never left the content of another message with its key, and releases it: $9 payload,
// $10 hash, $11 algorithm, $12 and $13 names and values of search terms. What a step has done of the old content is not
// of the new one.
const supersedeTask = `/* settle:supersede */
with ` + actHeld + `, changed as (
  update settle.tasks t set ` + actFence + `, ` + actDue + `,
    status = 'started', payload = $9, payload_hash = $10, hash_algorithm = $11
  from held h
  where ` + actShown + ` and h.status = 'needs_review' and not h.touched
    and not exists (select from settle.steps s where s.task_id = h.id)
  returning t.*
), ` + actNoted + `, searchable as (
  insert into settle.task_refs (name, value, task_id)
  select r.name, r.value, id from changed cross join unnest($12::text[], $13::text[]) as r(name, value)
  on conflict do nothing
)
select ` + taskColumns + ` from changed t`

// noteTask adds an audit line and changes nothing else: $1 id, $2 when it was begun, $3 actor, $4 reason, $5 external id,
// $6 traceparent. The moment makes it one line, however often the statement is run.
const noteTask = `/* settle:note */
insert into settle.task_events (task_id, at, actor, attempt, old_status, new_status, reason, external_id, trace_id)
select t.id, $2, $3, t.attempts, t.status, t.status, $4, $5, split_part($6::text, '-', 2)
from settle.tasks t
where t.id = $1 and not exists (
  select from settle.task_events e where e.task_id = $1 and e.at = $2 and e.actor = $3 and e.reason = $4)`

const moment = `/* settle:moment */ select clock_timestamp()`
