package handlers

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestChargeKey(t *testing.T) {
	const rest = `,"customer_id":"c_17","amount":1200,"currency":"EUR"}`
	for body, want := range map[string]string{ // "" is a refusal
		`{"order_id":"18452"` + rest:                                                 "order_18452",
		`{"order_id":18452` + rest:                                                   "order_18452",
		`{"order_id":9007199254740993` + rest:                                        "order_9007199254740993",
		`{"order_id":21000000` + rest:                                                "order_21000000",
		`{"order_id":" x "` + rest:                                                   "order_ x ",
		`{"order_id":1.0` + rest:                                                     "",
		`{"order_id":1e2` + rest:                                                     "",
		`{"order_id":""` + rest:                                                      "",
		`{"order_id":"   "` + rest:                                                   "",
		`{"order_id":null` + rest:                                                    "",
		`{"order_id":{}` + rest:                                                      "",
		`{"order_id":false` + rest:                                                   "",
		`{"order_id":[]` + rest:                                                      "",
		`{` + strings.TrimPrefix(rest, ","):                                          "",
		`{"order_id":"1","amount":1}`:                                                "",
		`{"order_id":"1","customer_id":"c_17"}`:                                      "",
		`{"order_id":"1","customer_id":"c_17","amount":1}`:                           "",
		`{"order_id":"1","customer_id":"c_17","currency":"EUR"}`:                     "",
		`{"order_id":"1","customer_id":" ","amount":1,"currency":"EUR"}`:             "",
		`{"order_id":"1","customer_id":"c\u0000","amount":1,"currency":"EUR"}`:       "",
		`{"order_id":"1","customer_id":"c_17","amount":1,"currency":"E\u0000"}`:      "",
		`{"order_id":"1","customer_id":"c_17","amount":1,"currency":"` + long + `"}`: "",
	} {
		var j ChargeJob
		if err := json.Unmarshal([]byte(body), &j); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		key, err := j.key()
		if key != want || (err != nil) != (want == "") {
			t.Errorf("%s: key %q, error %v; want %q", body, key, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "c_17") {
			t.Errorf("%s: the error quotes the body: %v", body, err)
		}
	}
}

const long = "EUREUREUREUREUREUREUREUR"

// D-12: an amount stays as it was written.
func TestAmount(t *testing.T) {
	for text, ok := range map[string]bool{
		`0`: true, `1200`: true, `0.10`: true, `12345678901234567890.10`: true, `1e2`: true, `1E-99`: true, `1.50e+10`: true,
		`12345678901234567890123456789012`:  true,
		`123456789012345678901234567890123`: false,
		`-1`:                                false, `-0`: false, `"1200"`: false, `null`: false, `true`: false, `[]`: false, `{}`: false,
		`1e100`: false, `1e100000`: false, `1e-100`: false, `1e99999999999999999999`: false,
	} {
		var j struct {
			Amount Amount `json:"amount"`
		}
		err := json.Unmarshal([]byte(`{"amount":`+text+`}`), &j)
		if (err == nil) != ok {
			t.Errorf("%s: error %v", text, err)
			continue
		}
		if !ok {
			continue
		}
		if out, err := json.Marshal(j); err != nil || string(out) != `{"amount":`+text+`}` {
			t.Errorf("%s became %s, error %v", text, out, err)
		}
	}
	if out, err := json.Marshal(Amount("")); err == nil {
		t.Errorf("an absent amount is written as %s", out)
	}
}

func TestAmountEquals(t *testing.T) {
	for _, c := range []struct {
		a, b Amount
		want bool
	}{
		{"1200", "1200", true},
		{"1200", "1200.00", true},
		{"1200", "1.2e3", true},
		{"1200", "1200.01", false},
		{"12345678901234567890.10", "12345678901234567890.11", false},
		{"9007199254740993", "9007199254740992", false},
	} {
		if got := c.a.equals(c.b); got != c.want {
			t.Errorf("%s equals %s: %v", c.a, c.b, got)
		}
	}
}

// The provider gets the same bytes however the id was written, and the amount digit for digit.
func TestChargeBody(t *testing.T) {
	for _, id := range []string{`"9007199254740993"`, `9007199254740993`} {
		s, _ := provider(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			const want = `{"order_id":"9007199254740993","customer_id":"c_17","amount":12345678901234567890.10,"currency":"EUR"}`
			if err != nil || string(body) != want {
				t.Errorf("body %s, error %v", body, err)
			}
			says(201, `{"charge_id":"ch_1"}`)(w, r)
		})
		a := chargeAttempt()
		body := `{"order_id":` + id + `,"customer_id":"c_17","amount":12345678901234567890.10,"currency":"EUR","sent_at":1}`
		if err := json.Unmarshal([]byte(body), &a.Job); err != nil {
			t.Fatal(err)
		}
		if _, err := Charge(client(t, ClientOptions{URL: s.URL}), ChargeOptions{}).Perform(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
}

func TestChargeRefs(t *testing.T) {
	refs := chargeJob().refs()
	if refs["order"] != "18452" || refs["customer"] != "c_17" || len(refs) != 2 {
		t.Errorf("%v", refs)
	}
}
