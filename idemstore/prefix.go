package idemstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Prefix is a plain provider-key prefix of a kind.
type Prefix struct{ Provider, Prefix, Kind string }

// OwnPrefix registers a prefix for its kind, for all processes on this database. It returns an error that names
// the other kind when that kind's prefix at the same provider begins with this one, or is its beginning: two
// tasks could then share a provider key.
func (s *Store) OwnPrefix(ctx context.Context, p Prefix) error {
	var kind, prefix string
	err := again(ctx, func(ctx context.Context) error {
		kind, prefix = "", ""
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(lockPrefixes)
			b.Queue(clashingPrefix, p.Provider, p.Prefix, p.Kind)
			b.Queue(ownPrefix, p.Provider, p.Prefix, p.Kind)
		}, func(r pgx.BatchResults) error {
			if _, err := r.Exec(); err != nil {
				return err
			}
			if err := r.QueryRow().Scan(&kind, &prefix); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			_, err := r.Exec()
			return err
		}))
	})
	switch {
	case err != nil:
		return fmt.Errorf("register key prefix: %w", err)
	case kind != "":
		return fmt.Errorf("kind %s: %w: %q and %q of kind %s at the same provider; choose prefixes of which none "+
			"begins another", p.Kind, ErrPrefixTaken, p.Prefix, prefix, kind)
	}
	return nil
}
