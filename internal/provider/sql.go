package provider

// The SQL of the stand-in provider. Reports and charges have one shape, so that one path of code serves both:
// every statement that returns an effect returns (id, status as of now, payload hash, content columns).

// countRequest counts a request on its receipt, in a commit of its own.
const countRequest = `
insert into provider.requests (key, method, path) values ($1, $2, $3) returning id`

// noteStatus records what a request is about to be answered.
const noteStatus = `
update provider.requests set status = $2 where id = $1`

// countAll returns W and E of everything, countKey those of one key.
const (
	countAll = `
select (select count(*) from provider.requests where method = 'POST'),
       (select count(*) from provider.reports where status <> 'failed')
     + (select count(*) from provider.charges where status <> 'declined')`

	countKey = `
select (select count(*) from provider.requests where method = 'POST' and key = $1),
       (select count(*) from provider.reports where idempotency_key = $1 and status <> 'failed')
     + (select count(*) from provider.charges where idempotency_key = $1 and status <> 'declined')`
)

// insertReport creates a report, or returns no row where its dedup_key is taken. It waits while another
// transaction holds that key and has not ended.
const insertReport = `
insert into provider.reports
  (report_id, idempotency_key, dedup_key, payload_hash, status, ready_at, visible_at, task_id, report_type)
values ($1, $2, $3, $4, $5,
  clock_timestamp() + $6::bigint * interval '1 microsecond',
  clock_timestamp() + $7::bigint * interval '1 microsecond',
  $8::text::numeric, $9)
on conflict (dedup_key) do nothing
returning ` + reportColumns

const reportColumns = `report_id,
  case when ready_at > clock_timestamp() then 'pending' else status end,
  payload_hash, array[task_id::text, report_type]`

const (
	// reportHolding reads the report that holds a dedup_key.
	reportHolding = `select ` + reportColumns + ` from provider.reports where dedup_key = $1`

	// reportsByKey is the look-up: the newest, since a key that was ignored or forgotten may have made several.
	reportsByKey = `select ` + reportColumns + ` from provider.reports
where idempotency_key = $1 and visible_at <= clock_timestamp() order by id desc limit 1`

	reportByID = `select ` + reportColumns + ` from provider.reports where report_id = $1`

	// forgetReport frees a key that is older than $2 microseconds.
	forgetReport = `update provider.reports set dedup_key = null
where dedup_key = $1 and created_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'`
)

// insertCharge is insertReport for charges.
const insertCharge = `
insert into provider.charges
  (charge_id, idempotency_key, dedup_key, payload_hash, status, ready_at, visible_at,
   order_id, customer_id, amount, currency)
values ($1, $2, $3, $4, $5,
  clock_timestamp() + $6::bigint * interval '1 microsecond',
  clock_timestamp() + $7::bigint * interval '1 microsecond',
  $8, $9, $10, $11)
on conflict (dedup_key) do nothing
returning ` + chargeColumns

const chargeColumns = `charge_id,
  case when ready_at > clock_timestamp() then 'pending' else status end,
  payload_hash, array[order_id, amount, currency]`

// The same four for charges.
const (
	chargeHolding = `select ` + chargeColumns + ` from provider.charges where dedup_key = $1`

	chargesByKey = `select ` + chargeColumns + ` from provider.charges
where idempotency_key = $1 and visible_at <= clock_timestamp() order by id desc limit 1`

	chargeByID = `select ` + chargeColumns + ` from provider.charges where charge_id = $1`

	forgetCharge = `update provider.charges set dedup_key = null
where dedup_key = $1 and created_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'`
)
