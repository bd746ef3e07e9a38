package provider

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// content is what a POST asks for, in canonical form: strings decoded, numbers with the digits they came with.
type content struct {
	columns []string // in the order of the insert
	decline bool     // by rule: this customer's card never works
}

// declinedCustomer is the customer whose charges are always declined.
const declinedCustomer = "c_declined"

// maxDigits bounds task_id and amount, in characters.
const maxDigits = 32

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// hash identifies the content. JSON keeps the columns apart.
func (c content) hash() []byte {
	text, err := json.Marshal(c.columns)
	if err != nil {
		panic("provider: a list of strings cannot fail to be JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// decodeReport reads {"task_id": 42, "report_type": "monthly"}.
func decodeReport(body []byte) (content, error) {
	o, err := parseObject(body)
	if err != nil {
		return content{}, err
	}
	raw, err := o.take("task_id")
	if err != nil {
		return content{}, err
	}
	if !integer.Match(raw) || len(raw) > maxDigits {
		return content{}, fmt.Errorf("task_id must be an integer of at most %d digits", maxDigits)
	}
	kind, err := o.text("report_type")
	if err != nil {
		return content{}, err
	}
	return content{columns: []string{string(raw), kind}}, o.end()
}

// decodeCharge reads {"order_id": "18452", "customer_id": "c_17", "amount": 1200, "currency": "EUR"}.
func decodeCharge(body []byte) (content, error) {
	o, err := parseObject(body)
	if err != nil {
		return content{}, err
	}
	order, e1 := o.orderID()
	customer, e2 := o.text("customer_id")
	amount, e3 := o.amount()
	currency, e4 := o.text("currency")
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return content{}, err
	}
	return content{
		columns: []string{order, customer, amount, currency},
		decline: customer == declinedCustomer,
	}, o.end()
}

// orderID takes a string or an exact integer; both spellings of one id are the same content.
func (o object) orderID() (string, error) {
	if raw := o["order_id"]; integer.Match(raw) && len(raw) <= maxDigits {
		delete(o, "order_id")
		return string(raw), nil
	}
	return o.text("order_id")
}

// amount takes a JSON number of at least 0 and keeps its digits.
func (o object) amount() (string, error) {
	raw, err := o.take("amount")
	if err != nil {
		return "", err
	}
	// Of all JSON values only a number that is not negative begins with a digit.
	if raw[0] < '0' || raw[0] > '9' || len(raw) > maxDigits {
		return "", fmt.Errorf("amount must be a number, 0 or more, of at most %d characters", maxDigits)
	}
	return string(raw), nil
}
