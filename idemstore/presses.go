package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Pressed is one form of the support screen that was sent. Its fields are the columns of settle.presses.
type Pressed struct {
	ID      uuid.UUID
	Actor   string
	Act     string
	Place   string // the page that it is about
	Reason  string
	Digest  []byte     // of all that was asked for
	At      time.Time  // by the database clock; ignored when it is begun
	Outcome string     // empty: it is not over, or nobody wrote down how it ended
	Message string     // what came of it
	EndedAt *time.Time // nil as long as there is no outcome
}

// beginPress adds a press unless there is one with its id: $1 id, $2 token, $3 actor, $4 act, $5 place, $6 reason, $7 digest.
const beginPress = `/* settle:begin-press */
insert into settle.presses (id, token, actor, act, place, reason, digest) values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing`

const pressColumns = `id, actor, act, place, reason, digest, at, coalesce(outcome, ''), coalesce(message, ''), ended_at`

// whosePress reads a press ($1 id) and whether it is that of a token ($2). It is a statement of its own, so that it sees
// what the insert has waited for.
const whosePress = `/* settle:whose-press */
select ` + pressColumns + `, token = $2 from settle.presses where id = $1`

// findPress reads a press.
const findPress = `/* settle:find-press */
select ` + pressColumns + ` from settle.presses where id = $1`

// endPress writes down what came of a press, once: $1 id, $2 outcome, $3 message.
const endPress = `/* settle:end-press */
update settle.presses set outcome = $2, message = $3, ended_at = clock_timestamp() where id = $1 and outcome is null`

// BeginPress notes that a press is about to be done. mine is false where there is one with the same id already: then nothing
// is to be done, and the press is that one. It is repeated until it is known to be committed or ctx ends; after an error
// the caller does nothing either.
func (s *Store) BeginPress(ctx context.Context, p Pressed) (kept Pressed, mine bool, err error) {
	token := uuid.New()
	err = again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(beginPress, p.ID, token, clean(p.Actor), clean(p.Act), clean(p.Place), clean(p.Reason), p.Digest)
			b.Queue(whosePress, p.ID, token)
		}, func(r pgx.BatchResults) error {
			if _, err := r.Exec(); err != nil {
				return err
			}
			return r.QueryRow().Scan(append(kept.columns(), &mine)...)
		}))
	})
	if err != nil {
		return Pressed{}, false, fmt.Errorf("begin press: %w", err)
	}
	return kept, mine, nil
}

func (p *Pressed) columns() []any {
	return []any{&p.ID, &p.Actor, &p.Act, &p.Place, &p.Reason, &p.Digest, &p.At, &p.Outcome, &p.Message, &p.EndedAt}
}

// EndPress writes down what came of a press, and returns the press as it is then: what is written already stays. It is
// repeated until it is known to be committed or ctx ends.
func (s *Store) EndPress(ctx context.Context, id uuid.UUID, outcome, message string) (kept Pressed, err error) {
	err = again(ctx, func(ctx context.Context) error {
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(endPress, id, clean(outcome), clean(message))
			b.Queue(findPress, id)
		}, func(r pgx.BatchResults) error {
			if _, err := r.Exec(); err != nil {
				return err
			}
			return r.QueryRow().Scan(kept.columns()...)
		}))
	})
	if err != nil {
		return Pressed{}, fmt.Errorf("end press: %w", err)
	}
	return kept, nil
}

// FindPress returns a press by its id, or ErrNotFound.
func (s *Store) FindPress(ctx context.Context, id uuid.UUID) (Pressed, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[Pressed], findPress, id)
	switch {
	case err != nil:
		return Pressed{}, fmt.Errorf("find press: %w", err)
	case len(found) == 0:
		return Pressed{}, ErrNotFound
	}
	return found[0], nil
}
