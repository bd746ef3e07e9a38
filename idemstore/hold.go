package idemstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Renewal asks for a longer lease.
type Renewal struct {
	Fence
	Lease time.Duration // from now on, by the database clock
}

// Renew extends leases in one statement and returns those attempts that it confirmed. One that is missing was not
// confirmed: its row may be locked by its own save, or lost. An expired lease is never revived. A process may hold two
// attempts of one task for a moment, of which only the later one is current, so a task's id would confirm too much.
// It blocks for one round trip and is not repeated: the next heartbeat is the repetition.
func (s *Store) Renew(ctx context.Context, renewals ...Renewal) (map[Fence]bool, error) {
	n := len(renewals)
	ids, attempts, tokens, leases := make([]int64, n), make([]int32, n), make([]pgtype.UUID, n), make([]int64, n)
	for i, r := range renewals {
		ids[i], attempts[i], tokens[i], leases[i] = r.TaskID, int32(r.Attempt), tokenOf(r.Token), r.Lease.Microseconds()
	}
	confirmed := make(map[Fence]bool, n)
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(renew, ids, attempts, tokens, leases)
	}, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		var at int
		_, err = pgx.ForEachRow(rows, []any{&at}, func() error { confirmed[renewals[at-1].Fence] = true; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	return confirmed, nil
}

// Arm is the request to turn an attempt that asked into one that may send once more.
type Arm struct {
	Fence
	Lease       time.Duration
	Keyed       bool          // the provider keeps keys
	KeyLifetime time.Duration // lifetime less its safety margin
	Provider    string        // identity of the provider now; another one counts as an expired key
	ByKey       bool          // it was decided because the key is young: if that is over, no permission stands in for it
	Permitted   bool          // the kind allows a resend that does not rest on the key
	Reason      string        // audit line
	Actor       string        // who is named there; "worker"
}

// Armed says on what a resend rests.
type Armed struct {
	// KeyRest is how long the provider's key still protects the resend, counted from before the call. Zero
	// means that the resend does not rest on the key's age.
	KeyRest time.Duration
}

// Arm confirms the lease right before a resend. ErrLost means that nothing may be sent: the lease or the fence
// is gone, late proof or an external id has come in, or the key is no longer young.
func (s *Store) Arm(ctx context.Context, a Arm) (Armed, error) {
	var rest *int64
	found := false
	err := again(ctx, func(ctx context.Context) error {
		return s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(arm, a.TaskID, a.Attempt, a.Token, a.Lease.Microseconds(), orNull(a.KeyLifetime.Microseconds()),
				a.Provider, a.Keyed, a.Permitted, clean(a.Reason), actorOf(a.Actor), a.ByKey)
		}, func(r pgx.BatchResults) error {
			rows, err := r.Query()
			if err != nil {
				return err
			}
			_, err = pgx.ForEachRow(rows, []any{&rest}, func() error { found = true; return nil })
			return err
		})
	})
	switch {
	case err != nil:
		return Armed{}, fmt.Errorf("arm: %w", err)
	case !found:
		return Armed{}, fmt.Errorf("arm: %w", ErrLost)
	}
	return Armed{KeyRest: microsecondsOf(rest)}, nil
}

// Release gives the task back; the status it leaves is Started (known not applied) or Unknown (an earlier attempt
// may have been applied). ErrLost means that the attempt was not current and nothing was written. After a lost
// answer it is run again, and a second look tells whether the first run went through.
func (s *Store) Release(ctx context.Context, r Release) (Status, error) {
	var status Status
	err := again(ctx, func(ctx context.Context) error {
		status = ""
		return repeatable(s.transact(ctx, func(b *pgx.Batch) {
			b.Queue(release, r.TaskID, r.Attempt, r.Token, r.Delay.Microseconds(), orNull(clean(r.LastError)),
				orNull(clean(r.ErrorClass)), orNull(clean(r.Reason)), traceID(r.Trace), r.Cost, actorOf(r.Actor))
		}, func(br pgx.BatchResults) error {
			rows, err := br.Query()
			if err != nil {
				return err
			}
			_, err = pgx.ForEachRow(rows, []any{&status}, func() error { return nil })
			return err
		}))
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("release: %w", err)
	case status == "":
		return s.releasedBefore(ctx, r)
	}
	return status, nil
}

// releasedBefore tells a release whose answer was lost from a task that is not ours any more.
func (s *Store) releasedBefore(ctx context.Context, r Release) (Status, error) {
	t, err := s.FindByID(ctx, r.TaskID)
	switch {
	case err != nil:
		return "", fmt.Errorf("release: %w", err)
	case t.Fence == r.Fence && t.LeaseUntil == nil && (t.Status == Started || t.Status == Unknown):
		return t.Status, nil
	}
	return "", fmt.Errorf("release: %w", ErrLost)
}
