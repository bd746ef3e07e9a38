package idemstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ClaimNew is Claim for keys that are likely to be new: in less time it claims those that nobody has, and finds the
// others Taken. For a taken key nothing was done and nothing is known; Claim looks at its row.
//
// It may be repeated with the same token, as Claim may: a key that this token has already is Taken, and Claim finds
// it Inserted. All else is as for Claim.
func (s *Store) ClaimNew(ctx context.Context, claims ...Claim) ([]Claimed, error) {
	return s.claim(ctx, claims, s.insertOnce)
}

func (s *Store) insertOnce(ctx context.Context, claims []Claim) (out []Claimed, err error) {
	x := inserting(claims)
	err = s.transact(ctx, x.queue, func(r pgx.BatchResults) (err error) {
		out, err = x.read(r)
		return err
	})
	return out, err
}

// insertion is the inserting of claims in the order of their keys, with one statement for each kind.
type insertion struct {
	claims []Claim
	runs   [][]Claim // sorted; the claims of a run have in common what claimInsert takes once
	refs   bool
}

func inserting(claims []Claim) *insertion {
	x := &insertion{claims: claims}
	byKey := func(a, b Claim) int { return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key)) }
	makesNone := func(c Claim) bool { return c.Recovery || c.Taken }
	sorted := claims
	if slices.ContainsFunc(claims, makesNone) {
		sorted = slices.DeleteFunc(slices.Clone(claims), makesNone)
	}
	if !slices.IsSortedFunc(sorted, byKey) {
		sorted = slices.SortedFunc(slices.Values(sorted), byKey)
	}
	for start := 0; start < len(sorted); {
		end := start + 1
		for end < len(sorted) && sorted[end].common() == sorted[start].common() {
			end++
		}
		x.runs = append(x.runs, sorted[start:end])
		start = end
	}
	x.refs = slices.ContainsFunc(sorted, func(c Claim) bool { return len(c.Refs) > 0 })
	return x
}

// common is what claimInsert takes once for all its rows.
type common struct {
	kind, algorithm, provider, stream string
	lease, maxAge                     time.Duration
	local                             bool
}

func (c *Claim) common() common {
	return common{c.Kind, c.HashAlgorithm, c.Provider, c.Origin.Stream, c.Lease, c.MaxAge, c.Local}
}

func (x *insertion) queue(b *pgx.Batch) {
	for _, run := range x.runs {
		b.Queue(claimInsert, insertArgs(run)...)
	}
	if x.refs {
		b.Queue(claimRefs, refArgs(x.claims)...)
	}
}

// read reads the answers to what queue has queued.
func (x *insertion) read(r pgx.BatchResults) ([]Claimed, error) {
	made := make(map[uuid.UUID]int64, len(x.claims))
	for range x.runs {
		rows, err := r.Query()
		if err != nil {
			return nil, err
		}
		var (
			id    int64
			token pgtype.UUID
		)
		if _, err := pgx.ForEachRow(rows, []any{&id, &token}, func() error { made[token.Bytes] = id; return nil }); err != nil {
			return nil, err
		}
	}
	if x.refs {
		if _, err := r.Exec(); err != nil {
			return nil, err
		}
	}
	out := make([]Claimed, len(x.claims))
	for i := range x.claims {
		if id, ok := made[x.claims[i].Token]; ok {
			out[i] = x.claims[i].inserted(id)
		}
	}
	return out, nil
}

// inserted is the answer to a claim that made a row: but for its id, the row is what the claim says.
func (c *Claim) inserted(id int64) Claimed {
	return Claimed{Found: Inserted, Age: Age{HasFirstSent: !c.Local}, Task: Task{
		Fence: Fence{TaskID: id, Attempt: 1, Token: c.Token}, Kind: c.Kind, Key: c.Key, Status: Started, Sending: !c.Local,
		Provider: c.Provider, ProviderKey: c.ProviderKey, Payload: c.Payload, Hash: c.Hash, HashAlgorithm: c.HashAlgorithm,
		Origin: Origin{Stream: c.Origin.Stream, Sequence: c.Origin.Sequence}, Reply: c.Reply, OriginTrace: c.OriginTrace,
	}}
}

// insertArgs are the arguments of claimInsert for claims that have the common part in common.
func insertArgs(claims []Claim) []any {
	n := len(claims)
	var (
		one                              = claims[0].common()
		keys, providerKeys               = make([]string, n), make([]string, n)
		tokens                           = make([]pgtype.UUID, n)
		payloads, hashes                 = make([][]byte, n), make([][]byte, n)
		sequences                        = make([]int64, n)
		stored                           = make([]*time.Time, n)
		eventIDs, eventSources           = make([]string, n), make([]string, n)
		replies, originTraces, ownTraces = make([]string, n), make([]string, n), make([]string, n)
	)
	for i := range claims {
		c := &claims[i]
		keys[i], providerKeys[i], tokens[i], payloads[i], hashes[i] = c.Key, c.ProviderKey, tokenOf(c.Token), c.Payload, c.Hash
		sequences[i], stored[i] = int64(c.Origin.Sequence), storedTime(c.Origin)
		replies[i], originTraces[i], ownTraces[i] = c.Reply, c.OriginTrace, c.Trace
		eventIDs[i], eventSources[i] = c.Event.ID, c.Event.Source
	}
	return []any{one.kind, one.local, one.algorithm, one.provider, one.stream, one.lease.Microseconds(), one.maxAge.Microseconds(),
		keys, tokens, payloads, hashes, providerKeys, sequences, stored, unlessEmpty(replies), unlessEmpty(originTraces), unlessEmpty(ownTraces),
		unlessEmpty(eventIDs), unlessEmpty(eventSources)}
}

// unlessEmpty is a column, or null where no row has a value in it.
func unlessEmpty[T comparable](column []T) []T {
	var zero T
	if slices.ContainsFunc(column, func(v T) bool { return v != zero }) {
		return column
	}
	return nil
}

// refArgs are the arguments of claimRefs.
func refArgs(claims []Claim) []any {
	var (
		kinds, keys, names, values []string
		tokens                     []pgtype.UUID
	)
	for _, c := range claims {
		for _, r := range c.Refs {
			kinds, keys, tokens = append(kinds, c.Kind), append(keys, c.Key), append(tokens, tokenOf(c.Token))
			names, values = append(names, r.Name), append(values, r.Value)
		}
	}
	return []any{kinds, keys, tokens, names, values}
}
