package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// errConflict: the key is held by other content.
var errConflict = errors.New("the key is taken by other content")

// create is POST on a resource.
func create(res resource) operation {
	return operation{
		key: func(r *http.Request) string { return r.Header.Get("Idempotency-Key") },
		read: func(x *exchange) error {
			body, err := readBody(x.w, x.r)
			if err != nil {
				return err
			}
			if err := checkKeyHeader(x.r.Header.Values("Idempotency-Key")); err != nil {
				return err
			}
			if x.content, err = res.decode(body); err != nil {
				return err
			}
			res.subject(&x.call, x.content)
			return nil
		},
		do: func(ctx context.Context, x *exchange) (answer, error) { return x.create(ctx, res) },
	}
}

// checkKeyHeader accepts no key or one good one.
func checkKeyHeader(keys []string) error {
	switch len(keys) {
	case 0:
		return nil
	case 1:
		return checkKey(keys[0])
	}
	return errKeyTwice
}

// create makes the effect or finds the one that its key made before, in one transaction.
func (x *exchange) create(ctx context.Context, res resource) (answer, error) {
	// Read committed, whatever the database's default is: the read after a lost insert must see the winner.
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	var made effect
	err := pgx.BeginTxFunc(ctx, x.pool, options, func(tx pgx.Tx) (err error) {
		made, x.call.Replayed, err = x.claim(ctx, tx, res)
		if err != nil {
			return err
		}
		x.call.ExternalID = made.id
		x.pass(ctx, BeforeCommit)
		return nil
	})
	if errors.Is(err, errConflict) {
		return errorAnswer(http.StatusConflict, "idempotency_conflict", ""), nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("create: %w", err)
	}
	x.pass(ctx, AfterCommit)
	return res.created(made, x.call.Replayed), nil
}

// claim inserts first and lets the database refuse a duplicate; the loser reads the winner's row. The two can
// miss each other only where the row is forgotten in between, hence the few rounds.
func (x *exchange) claim(ctx context.Context, tx pgx.Tx, res resource) (e effect, replayed bool, err error) {
	hash := x.content.hash()
	if err := x.forget(ctx, tx, res); err != nil {
		return e, false, err
	}
	for range 3 {
		e, err = scanEffect(tx.QueryRow(ctx, res.insert, x.insertArgs(res, hash)...))
		if !errors.Is(err, pgx.ErrNoRows) {
			return e, false, err
		}
		e, err = scanEffect(tx.QueryRow(ctx, res.holding, x.call.Key))
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			continue
		case err == nil && !bytes.Equal(e.hash, hash):
			return e, false, errConflict
		}
		return e, true, err
	}
	return e, false, errors.New("the key was taken and forgotten again, three times")
}

// forget frees the key if the provider keeps keys for less time than it has had this one.
func (x *exchange) forget(ctx context.Context, tx pgx.Tx, res resource) error {
	if x.fault.ForgetAfter == 0 || x.call.Key == "" {
		return nil
	}
	_, err := tx.Exec(ctx, res.forget, x.call.Key, x.fault.ForgetAfter.Microseconds())
	return err
}

// insertArgs are the parameters of the insert: those that all resources have, then the content.
func (x *exchange) insertArgs(res resource, hash []byte) []any {
	recorded := storable(x.call.Key)
	dedup := recorded
	if x.fault.IgnoreKeys {
		dedup = nil
	}
	args := []any{res.newID(), recorded, dedup, hash, res.outcome(x.content, x.fault),
		x.fault.Pending.Microseconds(), x.fault.Hide.Microseconds()}
	for _, column := range x.content.columns {
		args = append(args, column)
	}
	return args
}

func scanEffect(row pgx.Row) (e effect, err error) {
	err = row.Scan(&e.id, &e.status, &e.hash, &e.columns)
	return e, err
}
