package provider

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
)

// resource is a thing that the provider creates; the two differ in names, statements and content only.
type resource struct {
	path   string
	idName string // of the id in JSON
	prefix string // of the id

	insert, holding, byKey, byID, forget string // SQL

	decode  func([]byte) (content, error)
	done    string // the status of a created one
	refused string // the status of one that was declined or failed
	// describe adds the content columns to the answer of a look-up.
	describe func(answer map[string]any, columns []string)
	// subject names the request in Call.
	subject func(*Call, content)
}

var reports = resource{
	path: "/reports", idName: "report_id", prefix: "rep_",
	insert: insertReport, holding: reportHolding, byKey: reportsByKey, byID: reportByID, forget: forgetReport,
	decode: decodeReport, done: "ready", refused: "failed",
	describe: func(answer map[string]any, columns []string) {
		answer["task_id"], answer["report_type"] = json.Number(columns[0]), columns[1]
	},
	subject: func(call *Call, c content) { call.TaskID = c.columns[0] },
}

var charges = resource{
	path: "/charges", idName: "charge_id", prefix: "ch_",
	insert: insertCharge, holding: chargeHolding, byKey: chargesByKey, byID: chargeByID, forget: forgetCharge,
	decode: decodeCharge, done: "succeeded", refused: "declined",
	describe: func(answer map[string]any, columns []string) {
		answer["order_id"], answer["amount"], answer["currency"] = columns[0], json.Number(columns[1]), columns[2]
	},
	subject: func(call *Call, c content) { call.OrderID = c.columns[0] },
}

// newID returns an id that is not used yet, without asking.
func (res resource) newID() string { return res.prefix + rand.Text() }

// outcome returns the status that the created one has, or will have when it is no longer pending.
func (res resource) outcome(c content, f Fault) string {
	declined := res.prefix == charges.prefix && (c.decline || f.Decline)
	if declined || f.PendingFails {
		return res.refused
	}
	return res.done
}

// effect is a stored report or charge.
type effect struct {
	id      string
	status  string // as of now: pending, done or refused
	hash    []byte
	columns []string
}

// created is the answer to the POST that made the effect or found it.
func (res resource) created(e effect, replayed bool) answer {
	fields := map[string]any{res.idName: e.id, "status": e.status, "replayed": replayed}
	res.explain(e, fields)
	switch {
	case e.status == "pending":
		return jsonAnswer(http.StatusAccepted, fields)
	case e.status == "declined":
		return jsonAnswer(http.StatusPaymentRequired, fields)
	case replayed:
		return jsonAnswer(http.StatusOK, fields)
	}
	return jsonAnswer(http.StatusCreated, fields)
}

// found is the answer to a look-up.
func (res resource) found(e effect) answer {
	fields := map[string]any{res.idName: e.id, "status": e.status}
	res.describe(fields, e.columns)
	res.explain(e, fields)
	return jsonAnswer(http.StatusOK, fields)
}

func (res resource) explain(e effect, fields map[string]any) {
	if e.status == "declined" {
		fields["code"] = "card_declined"
	}
}
