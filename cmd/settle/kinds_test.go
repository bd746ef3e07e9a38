package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
)

func TestKindsSayWhichWorkRecordByRecord(t *testing.T) {
	t.Parallel()
	for kind, steps := range map[string]bool{"contacts.import": true, "contact.sync": false} {
		code, text, errOut := runSettle(t, nil, nil, "kinds", "--kind", kind)
		if code != exitDone || strings.Contains(text, "each in one transaction with its progress; the deadline") != steps {
			t.Errorf("%s: exit %d %s: %s", kind, code, errOut, text)
		}
		code, raw, errOut := runSettle(t, nil, nil, "kinds", "--json", "--kind", kind)
		var object struct {
			Steps bool `json:"record_by_record"`
		}
		if err := json.Unmarshal([]byte(raw), &object); code != exitDone || err != nil || object.Steps != steps {
			t.Errorf("%s: exit %d %s%v: %s", kind, code, errOut, err, raw)
		}
	}
}

func TestKindsSayWhetherEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	kind := consumer.Kind[struct{}, string]{
		Name: "crm.push", Contract: consumer.Contract{Effect: "a contact in the CRM"},
		Key:        func(struct{}) (string, error) { return "crm_1", nil },
		Perform:    func(context.Context, *consumer.Attempt[struct{}]) (string, error) { return "", nil },
		ExternalID: func(id string) string { return id },
	}
	for _, guarded := range []bool{false, true} {
		if guarded {
			kind.Entity = func(struct{}) (string, consumer.Version) { return "1", consumer.Version{} }
		}
		d, err := consumer.Describe(consumer.Config{}, kind)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := printKind(&text, describeKind(d)); err != nil || strings.Contains(text.String(), "one event of an entity at a time") != guarded {
			t.Errorf("guarded %v: %v\n%s", guarded, err, text.String())
		}
		var object struct {
			Guard bool `json:"order_guard"`
		}
		raw, err := json.Marshal(describeKind(d))
		if err := json.Unmarshal(raw, &object); err != nil || object.Guard != guarded {
			t.Errorf("guarded %v: %v %s", guarded, err, raw)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
