package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

// The statements of contact.sync on the shop's tables.
const (
	// lockContact reads a contact and keeps everybody else from changing it until the transaction ends: the order of
	// its events is decided under this lock.
	lockContact = `
select id, version, coalesce(updated_at_exact, ''), checksum from shop.contacts where source_id = $1 for update`

	// addContact makes the contact and records the event that made it. No row: another worker has just made it.
	addContact = `
with made as (
  insert into shop.contacts (source_id, version, updated_at, updated_at_exact, name, email, checksum, task_id)
  values ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8)
  on conflict (source_id) do nothing returning id
), recorded as (
  insert into shop.import_events (source_id, event_id, source_version, source_updated_at, source_updated_at_exact, checksum,
    result, changed, attempt, contact_id, task_id, idx)
  select $1, nullif($9, ''), $2, $3, nullif($4, ''), $7, 'imported', true, $10::int, id, $8, $11::int from made
)
select id from made`

	// changeContact lets the contact be as a newer event says.
	changeContact = `
update shop.contacts set version = $2, updated_at = $3, updated_at_exact = nullif($4, ''), name = $5, email = $6,
  checksum = $7, task_id = $8, changed_at = clock_timestamp()
where source_id = $1`

	// recordEvent keeps what became of an event.
	recordEvent = `
insert into shop.import_events (source_id, event_id, source_version, source_updated_at, source_updated_at_exact, checksum,
  result, changed, attempt, contact_id, task_id, idx)
values ($1, nullif($2, ''), $3, $4, nullif($5, ''), $6, $7, $8, $9, $10, $11, $12)`
)

// contactEvent is a job as it meets the contact's row.
type contactEvent struct {
	job         ContactJob
	task        int64
	attempt     int
	index       int // of the record in its batch
	source, sum string
	edition     edition
}

// storedContact is what a contact's row says of itself.
type storedContact struct {
	id      int64
	sum     string
	edition edition
}

// applyContact makes the contact what the event says, unless it is newer already, and records the event.
func applyContact(ctx context.Context, tx pgx.Tx, a *consumer.Attempt[ContactJob]) (ContactResult, error) {
	e, err := newContactEvent(a.Job, a.TaskID, a.Number)
	if err != nil {
		return ContactResult{}, consumer.Conflict(err) // key refuses such a job
	}
	return e.apply(ctx, tx)
}

func newContactEvent(j ContactJob, task int64, attempt int) (contactEvent, error) {
	e := contactEvent{job: j, task: task, attempt: attempt, source: textOf(j.SourceID)}
	var err error
	if e.edition, err = j.edition(); err != nil {
		return e, err
	}
	e.sum = j.checksum(e.edition)
	return e, nil
}

// apply makes the contact, or compares the event with it and changes it if the event wins, and records the event. Two
// round trips: an import does this for every record.
func (e contactEvent) apply(ctx context.Context, tx pgx.Tx) (ContactResult, error) {
	r := ContactResult{SourceID: e.source}
	stored, err := e.lock(ctx, tx)
	if errors.Is(err, pgx.ErrNoRows) {
		r.ContactID, err = e.add(ctx, tx)
		if err == nil {
			r.Result, r.Changed = EventImported, true
			return r, nil
		}
	}
	if errors.Is(err, pgx.ErrNoRows) { // made between the two statements, and committed: add has waited for it
		stored, err = e.lock(ctx, tx)
	}
	if err != nil {
		return r, fmt.Errorf("lock or add contact: %w", err)
	}
	r.ContactID = stored.id
	if r.Result, r.Changed, err = e.against(stored); err != nil {
		return r, err
	}
	return r, e.write(ctx, tx, r)
}

// against compares an event with the contact as it is.
func (e contactEvent) against(c storedContact) (result EventResult, wins bool, err error) {
	order, known := e.edition.compare(c.edition)
	switch {
	case !known:
		return "", false, consumer.Conflict(errors.New("event and contact cannot be compared: one has only a version, the other only updated_at"))
	case order > 0:
		return EventImported, true, nil
	case order < 0:
		return EventStale, false, nil
	case e.sum == c.sum:
		return EventDuplicate, false, nil
	}
	return EventTie, e.sum > c.sum, nil
}

func (e contactEvent) lock(ctx context.Context, tx pgx.Tx) (c storedContact, err error) {
	var exact string
	err = tx.QueryRow(ctx, lockContact, e.source).Scan(&c.id, &c.edition.version, &exact, &c.sum)
	if err == nil && exact != "" {
		c.edition.moment, err = parseMoment(exact)
	}
	return c, err
}

func (e contactEvent) add(ctx context.Context, tx pgx.Tx) (id int64, err error) {
	err = tx.QueryRow(ctx, addContact, append(e.row(), textOf(e.job.EventID), e.attempt, e.index)...).Scan(&id)
	return id, err
}

// row are the first arguments of addContact, and those of changeContact.
func (e contactEvent) row() []any {
	return []any{e.source, e.edition.version, e.edition.moment.time(), e.job.UpdatedAt, e.job.Name, e.job.Email, e.sum, e.task}
}

// write changes the contact, if the event has won, and records what became of the event.
func (e contactEvent) write(ctx context.Context, tx pgx.Tx, r ContactResult) error {
	b := &pgx.Batch{}
	if r.Changed {
		b.Queue(changeContact, e.row()...)
	}
	b.Queue(recordEvent, e.source, textOf(e.job.EventID), e.edition.version, e.edition.moment.time(), e.job.UpdatedAt,
		e.sum, string(r.Result), r.Changed, e.attempt, r.ContactID, e.task, e.index)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("change contact and record event: %w", err)
	}
	return nil
}
