package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

const (
	maxAmount   = 32 // characters
	maxExponent = 99 // more is no amount, and grows without bound in arithmetic
)

var errNoAmount = errors.New("amount is absent")

// Amount is a JSON number of at least 0, kept digit for digit: in minor units by convention (1200 is 12.00 EUR).
// The zero value is an absent amount.
type Amount string

// UnmarshalJSON takes a JSON number without a sign, of at most 32 characters and with an exponent of at most two
// digits. The error does not quote it.
func (a *Amount) UnmarshalJSON(data []byte) error {
	parsed := Amount(data)
	if err := parsed.check(); err != nil {
		return err
	}
	*a = parsed
	return nil
}

// MarshalJSON writes the digits as they came.
func (a Amount) MarshalJSON() ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	return []byte(a), nil
}

func (a Amount) check() error {
	switch {
	case a == "":
		return errNoAmount
	case len(a) > maxAmount:
		return fmt.Errorf("amount of %d characters, limit %d", len(a), maxAmount)
	case a[0] < '0' || a[0] > '9' || !json.Valid([]byte(a)):
		return errors.New("amount is not a number of 0 or more") // of JSON values only such a number begins with a digit
	}
	if at := strings.IndexAny(string(a), "eE"); at >= 0 {
		exponent, err := strconv.Atoi(string(a[at+1:]))
		if err != nil || exponent < -maxExponent || exponent > maxExponent {
			return fmt.Errorf("amount has an exponent beyond %d", maxExponent)
		}
	}
	return nil
}

// equals compares the values: 1200 and 1200.00 are the same amount. Both must be checked.
func (a Amount) equals(b Amount) bool {
	x, okX := new(big.Rat).SetString(string(a))
	y, okY := new(big.Rat).SetString(string(b))
	return okX && okY && x.Cmp(y) == 0
}
