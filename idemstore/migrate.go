package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sethvargo/go-retry"

	"github.com/settlemq/settle"
)

// migrationLock serialises migrations of one database: the number is arbitrary and must not change.
const migrationLock = 7305804402130193

// Whoever waits for a lock on a table is waited for by all who come later. So a migration waits for a moment only, gives the
// workers way, and tries again.
const (
	migrationWait  = 2 * time.Second // for one lock
	migrationPause = time.Second     // on average, between two tries
	migrationTries = 60
)

// Migrate brings a database to this build's schema, in one transaction under an advisory lock. It changes nothing
// where the schema is there already, and refuses a database that a newer build has migrated (ErrSchema), even if workers of
// this build go on there. Workers may run meanwhile: a table that is in use delays the migration, by about three minutes at
// most, and its users by no more than two seconds at a time.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	pauses := retry.WithMaxRetries(migrationTries-1, retry.WithJitterPercent(50, retry.NewConstant(migrationPause)))
	err := retry.Do(ctx, pauses, func(ctx context.Context) error {
		err := migrateOnce(ctx, conn)
		if sqlState(err) == lockTimeoutState {
			return retry.RetryableError(err)
		}
		return err
	})
	if sqlState(err) == lockTimeoutState {
		err = fmt.Errorf("a table is in use all the time; end the long transactions on it, see pg_stat_activity, and run it again: %w", err)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func migrateOnce(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		if err := refuseNewer(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`set local lock_timeout = %d`, migrationWait.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, settle.Schema())
		return err
	})
}

// refuseNewer keeps an older build from running its script over a newer schema.
func refuseNewer(ctx context.Context, tx pgx.Tx) error {
	var there bool
	err := tx.QueryRow(ctx, `select to_regclass('settle.schema_version') is not null`).Scan(&there)
	if err != nil || !there {
		return err
	}
	rows, err := tx.Query(ctx, schemaVersion)
	if err != nil {
		return err
	}
	versions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[schemaRow])
	if err == nil && len(versions) == 1 && versions[0].Version > settle.SchemaVersion {
		return errNewer(versions[0])
	}
	return err
}

// schemaRow is the one row of settle.schema_version.
type schemaRow struct{ Version, UsableFrom int }

func errNewer(r schemaRow) error {
	return fmt.Errorf("%w: it has version %d, this build knows %d; use a newer build", ErrSchema, r.Version, settle.SchemaVersion)
}

// CheckSchema returns ErrSchema, with what to run, unless the database has this build's schema, or that of a newer build
// which says that this one still works on it.
func (s *Store) CheckSchema(ctx context.Context) error {
	versions, err := query(ctx, s, pgx.RowToStructByPos[schemaRow], schemaVersion)
	return checkVersion(versions, err)
}

func checkVersion(versions []schemaRow, err error) error {
	var pg *pgconn.PgError
	missing := errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
	switch {
	case missing || err == nil && len(versions) == 0:
		return fmt.Errorf("%w: there is none; run: settle migrate", ErrSchema)
	case err != nil:
		return fmt.Errorf("check schema: %w", err)
	case versions[0].Version < settle.SchemaVersion:
		return fmt.Errorf("%w: it has version %d, this build needs %d; run: settle migrate", ErrSchema, versions[0].Version, settle.SchemaVersion)
	case versions[0].UsableFrom > settle.SchemaVersion:
		return errNewer(versions[0])
	}
	return nil
}
