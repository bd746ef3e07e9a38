package idemstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrCommitUnanswered: the answer to COMMIT was lost, and a second look did not find what it was to commit, or found nobody to
// ask. Whoever claimed must stay silent; the message comes again, or a recovery takes the task up.
var ErrCommitUnanswered = errors.New("commit was not answered, and what it was for was not found")

// Claim claims keys, each in one of the ways of the claim table, in one transaction that is committed before it
// returns; those that are said to be Taken and turn out to be Final are answered in one of their own before. A key may
// appear once per call. The answers are in the order of the claims.
//
// It blocks for one round trip, or two, longer only while the server lets nobody in. On an error no claim of the call
// may be acted upon; only ErrCommitUnanswered leaves open whether one was committed.
func (s *Store) Claim(ctx context.Context, claims ...Claim) ([]Claimed, error) {
	out, err := s.answer(ctx, claims)
	if err != nil {
		return nil, err
	}
	var rest []Claim
	var at []int // where the answers to the rest belong
	for i := range claims {
		if out[i].Found != Final {
			rest, at = append(rest, claims[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return out, nil
	}
	found, err := s.claim(ctx, rest, s.claimOnce)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		out[at[i]] = f
	}
	return out, nil
}

// claim runs once until its outcome is known.
func (s *Store) claim(ctx context.Context, claims []Claim, once func(context.Context, []Claim) ([]Claimed, error)) ([]Claimed, error) {
	var out []Claimed
	err := again(ctx, func(ctx context.Context) (err error) {
		out, err = once(ctx, claims)
		if sqlState(err) != lockTimeoutState {
			return err
		}
		// A redelivery is cheaper than waiting once more, and so is going one by one.
		if len(claims) > 1 {
			return &notCommitted{err, false}
		}
		out = []Claimed{{Found: Locked}}
		return nil
	})
	switch {
	case err == nil:
		return out, nil
	case isNotCommitted(err):
		return nil, fmt.Errorf("claim: %w", err)
	}
	return s.rereadClaims(ctx, claims, err)
}

func (s *Store) claimOnce(ctx context.Context, claims []Claim) (out []Claimed, err error) {
	x := inserting(claims)
	err = s.transact(ctx, func(b *pgx.Batch) {
		x.queue(b)
		columnsOf(claims).queue(b)
	}, func(r pgx.BatchResults) (err error) {
		if _, err = x.read(r); err != nil {
			return err
		}
		out, err = readClaims(r, claims)
		return err
	})
	return out, err
}

// queue queues the second half of a claim.
func (c *columns) queue(b *pgx.Batch) {
	b.Queue(claimDecide, c.kinds, c.keys, c.tokens, c.hashes, c.algorithms, c.payloads,
		c.streams, c.sequences, c.stored, c.providers, c.providerKeys, c.traces, c.leases, c.maxFailures, c.local,
		c.recovery, c.actors, c.notes)
}

// readClaims reads the answers to the second half.
func readClaims(r pgx.BatchResults, claims []Claim) ([]Claimed, error) {
	rows, err := r.Query()
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanClaimed)
	out := make([]Claimed, len(claims))
	for i := range out {
		out[i].Found = Locked
	}
	for _, f := range found {
		f.completeFrom(claims[f.position-1])
		out[f.position-1] = f
	}
	return out, err
}

// completeFrom fills in what the server need not send back.
func (c *Claimed) completeFrom(claim Claim) {
	if c.Found == Inserted {
		c.Task.Payload = claim.Payload
	}
}

// rereadClaims finds out what became of claims whose COMMIT was not answered.
func (s *Store) rereadClaims(ctx context.Context, claims []Claim, cause error) ([]Claimed, error) {
	out := make([]Claimed, len(claims))
	for i, c := range claims {
		found, err := query(ctx, s, scanClaimed, claimReread, c.Kind, c.Key, c.Token)
		if err != nil {
			return nil, fmt.Errorf("claim: %w: %w: read again: %w", ErrCommitUnanswered, cause, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("claim: %w: %w", ErrCommitUnanswered, cause)
		}
		out[i] = found[0]
		out[i].completeFrom(c)
	}
	return out, nil
}

// columns are claims as the arrays that claimDecide takes.
type columns struct {
	kinds, keys, algorithms, providers, providerKeys, streams, traces []string
	tokens                                                            []pgtype.UUID
	hashes, payloads                                                  [][]byte
	sequences, leases                                                 []int64
	stored                                                            []*time.Time
	maxFailures                                                       []int32
	local, recovery                                                   []bool
	actors, notes                                                     []string
}

func columnsOf(claims []Claim) *columns {
	c := &columns{}
	for _, x := range claims {
		c.kinds, c.keys = append(c.kinds, x.Kind), append(c.keys, x.Key)
		c.tokens = append(c.tokens, tokenOf(x.Token))
		c.hashes, c.algorithms = append(c.hashes, x.Hash), append(c.algorithms, x.HashAlgorithm)
		c.payloads = append(c.payloads, x.Payload)
		c.providers, c.providerKeys = append(c.providers, x.Provider), append(c.providerKeys, x.ProviderKey)
		c.streams, c.sequences = append(c.streams, x.Origin.Stream), append(c.sequences, int64(x.Origin.Sequence))
		c.stored = append(c.stored, storedTime(x.Origin))
		c.leases, c.traces = append(c.leases, x.Lease.Microseconds()), append(c.traces, x.Trace)
		c.maxFailures, c.local = append(c.maxFailures, int32(x.MaxFailures)), append(c.local, x.Local)
		c.recovery = append(c.recovery, x.Recovery)
		c.actors, c.notes = append(c.actors, actorOf(x.Actor)), append(c.notes, clean(x.Note))
	}
	return c
}

// tokenOf is a token as the driver takes it within an array, in every exec mode.
func tokenOf(token uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: token, Valid: true} }

// worker is the actor of what no person and no recovery did.
const worker = "worker"

// actorOf is an actor as the audit names it.
func actorOf(name string) string {
	if name == "" {
		return worker
	}
	return clean(name)
}

// storedTime is cut to what Postgres keeps, so that the same message compares equal; nil without a stream.
func storedTime(o Origin) *time.Time {
	if o.Stored.IsZero() {
		return nil
	}
	t := o.Stored.Truncate(time.Microsecond)
	return &t
}

func scanClaimed(row pgx.CollectableRow) (Claimed, error) {
	var (
		c                                     Claimed
		wait, first, last                     *int64
		absent, sending, unsure, resend       *bool
		id, sequence                          *int64
		attempts, failures                    *int32
		token                                 *uuid.UUID
		kind, key, status, evidence, external *string
		provider, providerKey, algorithm      *string
		result, lastError, cause, reply       *string
		origin, stream                        *string
		t                                     = &c.Task
	)
	err := row.Scan(&c.position, &c.Found, &c.PreviousTrace, &wait, &first, &last, &absent,
		&id, &kind, &key, &attempts, &token, &status, &sending, &unsure, &evidence, &external, &failures, &resend,
		&provider, &providerKey, &t.Hash, &algorithm, &t.Payload, &result, &lastError, &cause, &reply, &origin, &stream, &sequence)
	if err != nil || id == nil {
		return c, err
	}
	c.Wait = max(microsecondsOf(wait), 0)
	c.Age = Age{FirstSent: microsecondsOf(first), HasFirstSent: first != nil,
		LastSent: microsecondsOf(last), HasLastSent: last != nil, AbsentSeen: value(absent)}
	t.Fence = Fence{TaskID: *id, Attempt: int(value(attempts)), Token: value(token)}
	t.Kind, t.Key, t.Status = value(kind), value(key), Status(value(status))
	t.Sending, t.Unsure, t.ResendOnce = value(sending), value(unsure), value(resend)
	t.EvidenceID, t.ExternalID, t.Failures = value(evidence), value(external), int(value(failures))
	t.Provider, t.ProviderKey, t.HashAlgorithm = value(provider), value(providerKey), value(algorithm)
	t.Cause = Cause(value(cause))
	t.LastError, t.Reply, t.OriginTrace = value(lastError), value(reply), value(origin)
	t.Origin = Origin{Stream: value(stream), Sequence: uint64(value(sequence))}
	if result != nil {
		t.Result = []byte(*result)
	}
	return c, nil
}

func microsecondsOf(us *int64) time.Duration { return time.Duration(value(us)) * time.Microsecond }

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// orNull is nil for the zero value, which the statements read as "leave it".
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
