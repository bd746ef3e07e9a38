package consumer_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

// Rename is a job whose whole effect is a row.
type Rename struct {
	Account int64  `json:"account"`
	Change  int64  `json:"change"` // number of the change: one job for each
	Name    string `json:"name"`
}

// Renamed is what every repeat of the job gets.
type Renamed struct {
	Before string `json:"before"`
}

// A kind without a provider: claim, rows and result are one transaction.
func ExampleLocalKind() {
	rename := consumer.LocalKind[Rename, Renamed]{
		Name:     "account.rename",
		Contract: consumer.Contract{Effect: "none outside: the account has another name"},
		Key:      func(j Rename) (string, error) { return fmt.Sprintf("account_%d/%d", j.Account, j.Change), nil },
		// Everything goes through tx. An error, a panic or a crash takes all of it back.
		Apply: func(ctx context.Context, tx pgx.Tx, a *consumer.Attempt[Rename]) (Renamed, error) {
			const lock, set = `select name from app.accounts where id = $1 for update`, `update app.accounts set name = $2 where id = $1`
			var out Renamed
			if err := tx.QueryRow(ctx, lock, a.Job.Account).Scan(&out.Before); err != nil {
				return out, err // tried again later; of Policy.MaxFailures failures the last one calls a person
			}
			_, err := tx.Exec(ctx, set, a.Job.Account, a.Job.Name)
			return out, err
		},
	}
	d, err := consumer.Describe(consumer.Config{}, rename)
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Name, "is taken from", d.Subject, "by consumer", d.Consumer)
	// Output: account.rename is taken from jobs.account.rename by consumer account-rename
}
