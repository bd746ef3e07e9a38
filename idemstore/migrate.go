package idemstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settlemq/settle"
)

// migrationLock serialises migrations of one database: the number is arbitrary and must not change.
const migrationLock = 7305804402130193

// Migrate brings a database to this build's schema, in one transaction under an advisory lock. It changes nothing
// where the schema is there already, and refuses a database that a newer build has migrated (ErrSchema).
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		if err := refuseNewer(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, settle.Schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
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
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err == nil && len(versions) == 1 && versions[0] > settle.SchemaVersion {
		return checkVersion(versions, nil)
	}
	return err
}

// CheckSchema returns ErrSchema, with what to run, unless the database has exactly this build's schema.
func (s *Store) CheckSchema(ctx context.Context) error {
	versions, err := query(ctx, s, pgx.RowTo[int], schemaVersion)
	return checkVersion(versions, err)
}

func checkVersion(versions []int, err error) error {
	var pg *pgconn.PgError
	missing := errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
	switch {
	case missing || err == nil && len(versions) == 0:
		return fmt.Errorf("%w: there is none; run: settle migrate", ErrSchema)
	case err != nil:
		return fmt.Errorf("check schema: %w", err)
	case versions[0] < settle.SchemaVersion:
		return fmt.Errorf("%w: it has version %d, this build needs %d; run: settle migrate", ErrSchema, versions[0], settle.SchemaVersion)
	case versions[0] > settle.SchemaVersion:
		return fmt.Errorf("%w: it has version %d, this build knows %d; use a newer build", ErrSchema, versions[0], settle.SchemaVersion)
	}
	return nil
}
