package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/settlemq/settle/consumer"
)

// Parcel is the job: what is to be sent.
type Parcel struct {
	Order string `json:"order"`
	Grams int    `json:"grams"`
}

// Label is what the courier gives for a parcel.
type Label struct {
	Number string `json:"number"`
}

func bookParcel(c *courier) consumer.Kind[Parcel, Label] {
	return consumer.Kind[Parcel, Label]{
		Name: "parcel.book",
		Contract: consumer.Contract{
			Effect:    "books a parcel with the courier",
			Rows:      "parcels.labels: the label of the order",
			Success:   "the courier gave a label",
			SecondRun: "returns the same label",
			StopRule:  "a person is called after five attempts of which nobody knows what became",
		},
		Provider:   consumer.Provider{Identity: c.url},
		Key:        key,
		Refs:       func(p Parcel) consumer.Refs { return consumer.Refs{"order": p.Order} },
		Check:      known,
		Perform:    c.book,
		Lookup:     c.find,
		ExternalID: func(l Label) string { return l.Number },
		Commit: func(w *consumer.Writes, f consumer.Final[Parcel, Label]) error {
			if f.Refused != "" {
				return nil
			}
			w.Exec(`insert into parcels.labels values ($1, $2) on conflict do nothing`, f.Job.Order, f.ExternalID)
			w.Emit("events.parcel.booked", f.Key, f.Result)
			return nil
		},
	}
}

func key(p Parcel) (string, error) {
	if p.Order == "" {
		return "", errors.New("order is missing")
	}
	return "parcel_" + p.Order, nil
}

// known finds labels from before this service.
func known(ctx context.Context, db consumer.DB, p Parcel) (l Label, found bool, err error) {
	err = db.QueryRow(ctx, `select coalesce((select label from parcels.labels where order_id = $1), '')`, p.Order).Scan(&l.Number)
	return l, l.Number != "", err
}

// courier is the provider's API.
type courier struct {
	url  string
	http *http.Client
}

func (c *courier) book(ctx context.Context, a *consumer.Attempt[Parcel]) (Label, error) {
	body, err := json.Marshal(a.Job)
	if err != nil {
		return Label{}, consumer.NotSent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/parcels", bytes.NewReader(body))
	if err != nil {
		return Label{}, consumer.NotSent(err)
	}
	req.Header.Set("Idempotency-Key", a.ProviderKey)
	l, status, err := c.do(req)
	if status == http.StatusUnprocessableEntity {
		return l, consumer.Refused(errors.New("the courier does not take it"))
	}
	return l, err
}

func (c *courier) find(ctx context.Context, a *consumer.Attempt[Parcel]) (Label, consumer.Verdict, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/parcels?key="+url.QueryEscape(a.ProviderKey), http.NoBody)
	if err != nil {
		return Label{}, consumer.CannotTell, err
	}
	l, status, err := c.do(req)
	switch {
	case status == http.StatusNotFound:
		return l, consumer.Absent, nil
	case err != nil:
		return l, consumer.CannotTell, err
	}
	return l, consumer.Found, nil
}

func (c *courier) do(req *http.Request) (l Label, status int, err error) {
	res, err := c.http.Do(req)
	if err != nil {
		return l, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		return l, res.StatusCode, fmt.Errorf("the courier answered %d", res.StatusCode)
	}
	err = json.NewDecoder(res.Body).Decode(&l)
	if err == nil && l.Number == "" {
		err = errors.New("the courier gave no number")
	}
	return l, res.StatusCode, err
}
