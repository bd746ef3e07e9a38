package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Mode says how workers serve a kind. The values are what settle.controls.mode holds.
type Mode string

// The modes.
const (
	ModeRunning Mode = "running" // as usual; also where nobody ever asked for anything else
	ModeAsking  Mode = "asking"  // nothing is sent; tasks whose outcome is unknown are asked about
	ModePaused  Mode = "paused"  // nothing is taken, sent or asked
)

// Control is what a person asked of a kind. The latest one counts.
type Control struct {
	Kind   string
	Mode   Mode
	Actor  string
	Reason string
	At     time.Time // by the database clock; ignored when it is set
}

// controlsOf reads the latest control of each kind: $1 the kinds, or null for all that have one.
const controlsOf = `/* settle:controls */
select distinct on (kind) kind, mode, actor, reason, at
from settle.controls where $1::text[] is null or kind = any ($1) order by kind, id desc`

// setControl adds a control unless the kind is in that mode already, and tells which one counts then and whether it is
// new.
const setControl = `/* settle:set-control */
with latest as (
  select mode, actor, reason, at from settle.controls where kind = $1 order by id desc limit 1
), added as (
  insert into settle.controls (kind, mode, actor, reason)
  select $1, $2, $3, $4 where $2 <> coalesce((select mode from latest), 'running')
  returning mode, actor, reason, at
)
select mode, actor, reason, at, true from added
union all
select mode, actor, reason, at, false from latest where not exists (select from added)`

// knownKind tells whether there is a task of a kind.
const knownKind = `/* settle:known-kind */ select exists (select from settle.tasks where kind = $1)`

// Controls returns the latest control of each of these kinds, or of all kinds if none is named. A kind that has none is
// running. It is repeated over broken connections.
func (s *Store) Controls(ctx context.Context, kinds ...string) ([]Control, error) {
	found, err := query(ctx, s, pgx.RowToStructByPos[Control], controlsOf, kinds)
	if err != nil {
		return nil, fmt.Errorf("read controls: %w", err)
	}
	return found, nil
}

// SetControl asks all workers to serve a kind in a mode; each does from its next heartbeat on. A kind that is in that
// mode already stays as it is. It returns the control that counts now, and whether it is this one.
func (s *Store) SetControl(ctx context.Context, c Control) (now Control, changed bool, err error) {
	now = Control{Kind: c.Kind, Mode: ModeRunning}
	err = s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(setControl, c.Kind, string(c.Mode), clean(c.Actor), clean(c.Reason))
	}, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&now.Mode, &now.Actor, &now.Reason, &now.At, &changed}, func() error { return nil })
		return err
	})
	if err != nil {
		return Control{}, false, fmt.Errorf("set control: %w", err)
	}
	return now, changed, nil
}

// KnowsKind reports whether there is a task of a kind.
func (s *Store) KnowsKind(ctx context.Context, kind string) (bool, error) {
	found, err := query(ctx, s, pgx.RowTo[bool], knownKind, kind)
	if err != nil {
		return false, fmt.Errorf("look for kind: %w", err)
	}
	return found[0], nil
}
