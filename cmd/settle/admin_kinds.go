package main

import (
	"encoding/json"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/admin"
)

// adminKinds are the kinds of this build as the support screen shows them.
func adminKinds(cmd *cli.Command) (kinds []admin.Kind, err error) {
	defs, err := chosenKinds(cmd, definitions)
	if err != nil {
		return nil, err
	}
	for _, def := range defs {
		d, err := consumer.Describe(consumer.Config{Policy: policy(cmd)}, def)
		if err != nil {
			return nil, wrongUse("%w", err)
		}
		k := describeKind(d)
		kinds = append(kinds, admin.Kind{Name: d.Name, Link: d.Contract.Link, Hidden: d.Contract.Hidden, Facts: k.facts(), Object: k, Words: kindWords[d.Name]})
	}
	return kinds, nil
}

// kindWords are what customers are answered with.
var kindWords = map[string]admin.Words{
	"payment.charge": {Done: "Charged", NotDone: "Not charged", Whether: "whether it was charged", Reference: "charge", Detail: chargedAmount},
	"report.create":  {Done: "Report made", NotDone: "No report made", Whether: "whether the report was made", Reference: "report"},
	"contact.sync": {Done: "Contact brought up to date", NotDone: "Contact not brought up to date",
		Whether: "whether the contact was brought up to date"},
	"contacts.import": {Done: "Contacts imported", NotDone: "Contacts not imported", Whether: "whether the contacts were imported"},
	"receipt.send":    {Done: "Receipt made", NotDone: "No receipt made", Whether: "whether the receipt was made"},
}

// chargedAmount is the amount of a charge as a customer knows it; empty where the job does not tell.
func chargedAmount(job []byte) string {
	var j handlers.ChargeJob
	if json.Unmarshal(job, &j) != nil || j.Amount == "" || j.Currency == "" {
		return ""
	}
	return majorUnits(string(j.Amount), j.Currency)
}

// unusual are the currencies that are not divided into a hundred (ISO 4217), and into how many digits they are.
var unusual = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0, "BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}

// majorUnits writes an amount of minor units in major ones. What is not plain digits is shown as it is, and says so.
func majorUnits(amount, currency string) string {
	if strings.Trim(amount, "0123456789") != "" {
		return amount + " " + currency + " in minor units"
	}
	digits, known := unusual[strings.ToUpper(currency)]
	if !known {
		digits = 2
	}
	if digits == 0 {
		return amount + " " + currency
	}
	if short := digits + 1 - len(amount); short > 0 {
		amount = strings.Repeat("0", short) + amount
	}
	return amount[:len(amount)-digits] + "." + amount[len(amount)-digits:] + " " + currency
}
