package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/consumer"
)

// PriceList is a batch: many records under one key.
type PriceList struct {
	List   string  `json:"list"`
	Prices []Price `json:"prices"`
}

// Price is one record of it.
type Price struct {
	Article string `json:"article"`
	Cents   int64  `json:"cents"`
}

// PricesSet is what every repeat of the job gets.
type PricesSet struct {
	Set      int `json:"set"`
	SetAside int `json:"set_aside"`
}

// A kind that does a batch record by record. After a crash, and after any number of them, the next attempt goes on behind
// the last record that was committed.
func ExampleStepKind() {
	prices := consumer.StepKind[PriceList, Price, PricesSet]{
		Name:     "prices.set",
		Contract: consumer.Contract{Effect: "none outside: each article of the list has its price"},
		Key:      func(j PriceList) (string, error) { return "prices_" + j.List, nil },
		Steps:    func(j PriceList) []Price { return j.Prices },
		// One record in a transaction of its own, with the row that says that it is done. An error about the record sets it
		// aside, and the others go on.
		Step: func(ctx context.Context, tx pgx.Tx, _ *consumer.Attempt[PriceList], _ int, p Price) (string, error) {
			if p.Cents < 0 {
				return "", errors.New("the price is negative")
			}
			_, err := tx.Exec(ctx, `update app.articles set cents = $2 where id = $1`, p.Article, p.Cents)
			return "set", err
		},
		Done: func(_ context.Context, _ pgx.Tx, _ *consumer.Attempt[PriceList], records []consumer.StepResult) (out PricesSet, err error) {
			for _, r := range records {
				if r.Outcome == consumer.SetAside {
					out.SetAside++
				} else {
					out.Set++
				}
			}
			return out, nil
		},
	}
	d, err := consumer.Describe(consumer.Config{}, prices)
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Name, "is taken from", d.Subject, "by consumer", d.Consumer)
	// Output: prices.set is taken from jobs.prices.set by consumer prices-set
}
