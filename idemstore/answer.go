package idemstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// answer finds out which of the claims whose keys are taken are repeats of what is over, and counts them. All others come
// back empty, and nothing was done for them.
func (s *Store) answer(ctx context.Context, claims []Claim) ([]Claimed, error) {
	out := make([]Claimed, len(claims))
	a := answerable(claims)
	if len(a.at) == 0 {
		return out, nil
	}
	err := again(ctx, func(ctx context.Context) error {
		clear(out) // of a run that was rolled back
		return s.transact(ctx, a.queue, func(r pgx.BatchResults) error {
			rows, err := r.Query()
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, scanClaimed)
			for _, f := range found {
				out[a.at[f.position-1]] = f
			}
			return err
		})
	})
	switch {
	case err == nil:
		return out, nil
	case isNotCommitted(err):
		return nil, fmt.Errorf("claim: %w", err)
	}
	return nil, fmt.Errorf("claim: %w: %w", ErrCommitUnanswered, err)
}

// repeats are claims as the arrays that claimAnswer takes.
type repeats struct {
	at                      []int // their places among all claims
	kinds, keys, algorithms []string
	tokens                  []pgtype.UUID
	hashes                  [][]byte
}

func answerable(claims []Claim) *repeats {
	a := &repeats{}
	for i, c := range claims {
		if !c.Taken || c.Recovery {
			continue
		}
		a.at = append(a.at, i)
		a.kinds, a.keys, a.algorithms = append(a.kinds, c.Kind), append(a.keys, c.Key), append(a.algorithms, c.HashAlgorithm)
		a.tokens, a.hashes = append(a.tokens, tokenOf(c.Token)), append(a.hashes, c.Hash)
	}
	return a
}

func (a *repeats) queue(b *pgx.Batch) {
	b.Queue(claimAnswer, a.kinds, a.keys, a.tokens, a.hashes, a.algorithms)
}
