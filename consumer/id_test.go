package consumer

import (
	"encoding/json"
	"errors"
	"testing"
)

type idJob struct {
	OrderID ID `json:"order_id,omitzero"`
}

func TestD12IDsKeepEveryDigit(t *testing.T) {
	tests := map[string]string{
		`9007199254740992`:               "9007199254740992",
		`9007199254740993`:               "9007199254740993",
		`21000000`:                       "21000000",
		`"18452"`:                        "18452",
		`18452`:                          "18452",
		`"0018452"`:                      "0018452",
		`0`:                              "0",
		`-7`:                             "-7",
		`"1e3"`:                          "1e3",
		`" padded "`:                     " padded ",
		`"\u0041\ud83d\ude00"`:           "A😀",
		`123456789012345678901234567890`: "123456789012345678901234567890",
	}
	for literal, want := range tests {
		job, err := decodeJob[idJob](mustParse(t, `{"order_id": `+literal+` }`), "order_id")
		if err != nil {
			t.Fatalf("%s: %v", literal, err)
		}
		if got, err := job.OrderID.Text(); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", literal, got, err, want)
		}
	}
}

func TestD13IDsThatAreNone(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"absent", `{}`, "id is absent"},
		{"null", `{"order_id":null}`, "id is null"},
		{"empty", `{"order_id":""}`, "id is empty"},
		{"blank", `{"order_id":"   "}`, "id is only white space"},
		{"blank beyond ASCII", `{"order_id":"\t\u00a0\u3000"}`, "id is only white space"},
		{"object", `{"order_id":{}}`, "id is an object"},
		{"boolean", `{"order_id":false}`, "id is a boolean"},
		{"boolean true", `{"order_id":true}`, "id is a boolean"},
		{"array", `{"order_id":[]}`, "id is an array"},
		{"fraction", `{"order_id":1.0}`, "id is a number with a fraction or an exponent"},
		{"exponent", `{"order_id":2E7}`, "id is a number with a fraction or an exponent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job, err := decodeJob[idJob](mustParse(t, tt.body), "order_id")
			if err != nil {
				t.Fatal(err)
			}
			text, err := job.OrderID.Text()
			if text != "" || err == nil || err.Error() != tt.want {
				t.Errorf("got %q, %v, want error %q", text, err, tt.want)
			}
		})
	}
}

func TestIDSpellingsAreEqual(t *testing.T) {
	var a, b ID
	for literal, id := range map[string]*ID{`"18452"`: &a, `18452`: &b} {
		if err := json.Unmarshal([]byte(literal), id); err != nil {
			t.Fatal(err)
		}
	}
	if a != b || a != NewID("18452") {
		t.Errorf("%v, %v and %v differ", a, b, NewID("18452"))
	}
}

func TestIDMarshals(t *testing.T) {
	tests := map[string]string{
		`{"order_id":18452}`: `{"order_id":"18452"}`,
		`{"order_id":"x"}`:   `{"order_id":"x"}`,
		`{"order_id":""}`:    `{"order_id":""}`,
		`{"order_id":null}`:  `{"order_id":null}`,
		`{}`:                 `{}`,
	}
	for in, want := range tests {
		var job idJob
		if err := json.Unmarshal([]byte(in), &job); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(job); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{`true`, `{}`, `[]`, `1.5`} {
		var id ID
		if err := json.Unmarshal([]byte(in), &id); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(id); err == nil {
			t.Errorf("%s was written as %s", in, got)
		}
	}
}

func TestIDForgetsItsFormerValue(t *testing.T) {
	id := NewID("old")
	if err := json.Unmarshal([]byte(`null`), &id); err != nil {
		t.Fatal(err)
	}
	if _, err := id.Text(); !errors.Is(err, errIDNull) {
		t.Errorf("got %v", err)
	}
	if err := id.UnmarshalJSON([]byte(`"half`)); err == nil {
		t.Error("took broken JSON")
	}
}
