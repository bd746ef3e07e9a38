package consumer_test

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

// Job is what the message carries.
type Job struct {
	OrderID string `json:"order_id"`
	Amount  int64  `json:"amount"` // in cents
}

// Charge is what the provider answers, and what every repeat of the job gets.
type Charge struct {
	ID     string `json:"id"`
	Status string `json:"status,omitempty"`
}

// Client speaks to the provider. Its HTTP client must send through consumer.Transport.
type Client struct {
	BaseURL string
	HTTP    *http.Client
}

// ErrNone says that the provider knows no charge with this key.
var ErrNone = errors.New("no such charge")

// Create makes a charge. Only an answer that says so is a refusal; whatever else goes wrong leaves the outcome unknown.
func (c *Client) Create(ctx context.Context, key string, j Job) (Charge, error) {
	body, err := json.Marshal(j)
	if err != nil {
		return Charge{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/charges", bytes.NewReader(body))
	if err != nil {
		return Charge{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	charge, err := c.do(req)
	if isAnswer(err, http.StatusPaymentRequired, "card_declined") {
		return charge, consumer.Refused(err)
	}
	return charge, err
}

// Find looks a charge up by its key and creates nothing. Only the provider's own word counts as "none": a proxy answers 404, too.
func (c *Client) Find(ctx context.Context, key string) (Charge, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.BaseURL+"/charges?key="+url.QueryEscape(key), http.NoBody)
	if err != nil {
		return Charge{}, err
	}
	charge, err := c.do(req)
	if isAnswer(err, http.StatusNotFound, "not_found") {
		return charge, ErrNone
	}
	return charge, err
}

func (c *Client) do(req *http.Request) (charge Charge, err error) {
	res, err := c.HTTP.Do(req)
	if err != nil {
		return charge, err
	}
	defer res.Body.Close()
	var answer struct {
		Charge
		Code string `json:"code"`
	}
	err = json.NewDecoder(res.Body).Decode(&answer)
	switch {
	case res.StatusCode >= http.StatusMultipleChoices:
		return answer.Charge, &answerError{res.StatusCode, answer.Code}
	case err == nil && answer.ID == "":
		err = errors.New("the answer names no charge") // so nobody knows whether there is one
	}
	return answer.Charge, err
}

// answerError is an answer that is no success.
type answerError struct {
	status int
	code   string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the provider answered %d %s", e.status, e.code)
}

func isAnswer(err error, status int, code string) bool {
	var e *answerError
	return errors.As(err, &e) && e.status == status && e.code == code
}

func charge(api *Client) consumer.Kind[Job, Charge] {
	return consumer.Kind[Job, Charge]{
		Name:     "payment.charge",
		Contract: consumer.Contract{Effect: "charges a customer's card"},
		Provider: consumer.Provider{Identity: api.BaseURL, KeyPrefix: "order_"},
		// From the business event: never random, never the time, never the attempt.
		Key: func(j Job) (string, error) { return "order_" + j.OrderID, nil },
		// The effect. a.ProviderKey is the same in every attempt; requests pass consumer.Transport.
		Perform: func(ctx context.Context, a *consumer.Attempt[Job]) (Charge, error) {
			return api.Create(ctx, a.ProviderKey, a.Job)
		},
		// What became of it? Asked before anything is sent again.
		Lookup: func(ctx context.Context, a *consumer.Attempt[Job]) (Charge, consumer.Verdict, error) {
			c, err := api.Find(ctx, a.ProviderKey)
			switch {
			case errors.Is(err, ErrNone):
				return c, consumer.Absent, nil
			case err != nil:
				return c, consumer.CannotTell, err
			case c.Status == "declined": // it was asked for, and no money moved
				return c, consumer.FoundRefused, nil
			}
			return c, consumer.Found, nil
		},
		ExternalID: func(c Charge) string { return c.ID },
		// Local rows and events: committed with the result, or not at all.
		Commit: func(w *consumer.Writes, f consumer.Final[Job, Charge]) error {
			if f.Happened() {
				w.Exec(`update shop.orders set status = 'paid', charge_id = $2 where order_id = $1`, f.Job.OrderID, f.ExternalID)
				w.Emit("events.payment.charged", f.Key, f.Result)
			}
			return nil
		},
	}
}

// A kind whose effect happens at a provider: the one of the README, with the client that it uses.
func ExampleKind() {
	api := &Client{BaseURL: "https://pay.example", HTTP: &http.Client{Transport: &consumer.Transport{}}}
	d, err := consumer.Describe(consumer.Config{}, charge(api))
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Name, "travels on", d.Subject, "and", d.Contract.Effect)
	// Output: payment.charge travels on jobs.payment.charge and charges a customer's card
}
