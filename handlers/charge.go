package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/settlemq/settle/consumer"
)

// DefaultChargeRetention is the default retention of charges: longer than a week, because refunds and
// chargebacks ask for them.
const DefaultChargeRetention = 720 * time.Hour

const (
	chargeKind   = "payment.charge"
	chargePrefix = "order_"
	eventCharged = "events.payment.charged"

	maxCurrency = 16 // bytes
)

var charges = resource{path: "charges", idName: "charge_id", done: "succeeded", refused: "declined"}

// ChargeOptions are the settings of the kind payment.charge.
type ChargeOptions struct {
	// Policy overrides Config.Policy; zero fields do not, but a zero Retention is DefaultChargeRetention.
	Policy consumer.Policy
	// Provider is the provider's profile. An empty Identity is the client's; KeyPrefix is the kind's own.
	Provider consumer.Provider
	// Poll is how soon a charge that the provider has accepted is asked about again; 1 s.
	Poll time.Duration
	// CreateOrders adds an order that shop.orders does not know, as pending. Otherwise such a job needs a person.
	CreateOrders bool
	// Receipts emits a receipt.send job after each charge. Some worker has to serve that kind.
	Receipts bool
}

// ChargeJob is one order to charge.
type ChargeJob struct {
	OrderID    consumer.ID `json:"order_id"`    // string or integer
	CustomerID string      `json:"customer_id"` // required
	Amount     Amount      `json:"amount"`      // required
	Currency   string      `json:"currency"`    // required
}

// ChargeResult is what is stored of a charge, and replayed to every repeat.
type ChargeResult struct {
	ChargeID string `json:"charge_id"`      // may be empty only if the provider refused without making one
	Status   string `json:"status"`         // succeeded, declined or pending
	Code     string `json:"code,omitempty"` // why it was declined
}

// ChargeEvent is the payload of the event events.payment.charged.
type ChargeEvent struct {
	OrderID  string `json:"order_id"`
	ChargeID string `json:"charge_id"`
	Amount   Amount `json:"amount"`
	Currency string `json:"currency"`
}

// Charge declares payment.charge: one order is charged at most once. The business key is the order's id, and it
// goes to the provider as it is.
func Charge(api *Client, o ChargeOptions) consumer.Kind[ChargeJob, ChargeResult] {
	if o.Policy.Retention == 0 {
		o.Policy.Retention = DefaultChargeRetention
	}
	c := charge{api: api, profile: profile(o.Provider, api, chargePrefix), poll: o.Poll, createOrders: o.CreateOrders}
	return consumer.Kind[ChargeJob, ChargeResult]{
		Name: chargeKind,
		Contract: consumer.Contract{
			Effect:    "one charge of the order's amount at the payment provider",
			Rows:      "shop.orders (status, charge_id) and shop.payments, in the transaction of the result",
			Success:   "the provider reports the charge as succeeded; the order is then paid, and events.payment.charged follows",
			SecondRun: "returns the stored charge; an order that is already paid is not charged again",
			StopRule: "a declined card ends the job as failed. A person decides about an unknown order, an amount, currency or customer " +
				"other than the order's, an answer that contradicts the job, and an outcome that nobody can tell within the limits",
		},
		Policy:   o.Policy,
		Provider: c.profile,
		// A customer_id that is no string is a bad id as well, not a malformed body.
		Content:    consumer.Content{IDs: []string{"order_id", "customer_id"}},
		Key:        ChargeJob.key,
		Refs:       ChargeJob.refs,
		Check:      c.check,
		Perform:    c.perform,
		Lookup:     c.lookUp,
		ExternalID: func(r ChargeResult) string { return r.ChargeID },
		Commit: func(w *consumer.Writes, f consumer.Final[ChargeJob, ChargeResult]) error {
			bookCharge(w, f)
			if o.Receipts && f.Refused == "" && f.Source != consumer.Checked && f.ExternalID != "" {
				w.Emit("jobs."+receiptKind, receiptPrefix+f.Job.order(), ReceiptJob{f.Job.OrderID, f.ExternalID})
			}
			return nil
		},
	}
}

// profile completes a provider's profile for a kind with keys of its own.
func profile(p consumer.Provider, api *Client, prefix string) consumer.Provider {
	if p.Identity == "" {
		p.Identity = api.Identity()
	}
	p.KeyPrefix = prefix
	return p
}

// key also refuses a job with a member missing: no later attempt could do anything with it.
func (j ChargeJob) key() (string, error) {
	order, err := j.OrderID.Text()
	if err != nil {
		return "", fmt.Errorf("order_id: %w", err)
	}
	if !usableID(j.CustomerID) {
		return "", errors.New("customer_id: absent, blank, too long, or with control characters")
	}
	if j.Currency == "" || len(j.Currency) > maxCurrency || strings.ContainsFunc(j.Currency, unicode.IsControl) {
		return "", errors.New("currency: absent, too long, or with control characters")
	}
	if j.Amount == "" {
		return "", errNoAmount
	}
	return chargePrefix + order, nil
}

// order is the order's id; key has checked it.
func (j ChargeJob) order() string {
	text, err := j.OrderID.Text()
	if err != nil {
		return ""
	}
	return text
}

func (j ChargeJob) refs() consumer.Refs {
	return consumer.Refs{"order": j.order(), "customer": j.CustomerID}
}

// charge does the work of the kind.
type charge struct {
	api          *Client
	profile      consumer.Provider
	poll         time.Duration
	createOrders bool
}

// chargeRequest is the body of a POST: the same bytes in every attempt, however the publisher wrote the id.
type chargeRequest struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	Amount     Amount `json:"amount"`
	Currency   string `json:"currency"`
}

func (c charge) perform(ctx context.Context, a *consumer.Attempt[ChargeJob]) (ChargeResult, error) {
	j := a.Job
	e, err := create(ctx, c.api, charges, a, chargeRequest{j.order(), j.CustomerID, j.Amount, j.Currency}, c.profile, c.poll)
	return ChargeResult{e.id, e.status, e.code}, err
}

func (c charge) lookUp(ctx context.Context, a *consumer.Attempt[ChargeJob]) (ChargeResult, consumer.Verdict, error) {
	e, verdict, err := find(ctx, c.api, charges, a, a.Job.same)
	return ChargeResult{e.id, e.status, e.code}, verdict, err
}

// same compares what a look-up tells about a charge with the job. What it does not tell is not compared.
func (j ChargeJob) same(got answer) (bool, error) {
	var said struct {
		OrderID  consumer.ID `json:"order_id"`
		Amount   *Amount     `json:"amount"`
		Currency string      `json:"currency"`
	}
	if err := got.decode(&said); err != nil {
		return false, err
	}
	order, err := said.OrderID.Text()
	return (err != nil || order == j.order()) &&
		(said.Amount == nil || said.Amount.equals(j.Amount)) &&
		(said.Currency == "" || said.Currency == j.Currency), nil
}
