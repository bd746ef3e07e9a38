package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func mustParse(t testing.TB, body string) *document {
	t.Helper()
	doc, err := parse([]byte(body), 0)
	if err != nil {
		t.Fatalf("parse %.200q: %v", body, err)
	}
	return doc
}

// wantRefusal checks reason and detail of a refusal.
func wantRefusal(t *testing.T, err error, reason idemstore.Reason, detail string) {
	t.Helper()
	refusal, ok := errors.AsType[*refusalError](err)
	if !ok {
		t.Fatalf("got error %v, want a refusal", err)
	}
	if refusal.reason != reason || refusal.detail != detail {
		t.Errorf("got  %s: %s\nwant %s: %s", refusal.reason, refusal.detail, reason, detail)
	}
}

func TestD10BodiesThatAreNotOneCleanObject(t *testing.T) {
	tests := []struct{ name, body, detail string }{
		{"empty body", ``, "body ends inside the object, at offset 0"},
		{"only white space", " \n", "body ends inside the object, at offset 2"},
		{"cut off", `{"order_id":"A"`, "body ends inside the object, at offset 15"},
		{"cut off in a string", `{"order_id":"A`, "body ends inside the object, at offset 14"},
		{"cut off in an escape", `{"a":"\`, "body ends inside the object, at offset 7"},
		{"cut off in a number", `{"a":-`, "body ends inside the object, at offset 6"},
		{"byte-order mark", "\uFEFF{}", "byte-order mark at offset 0"},
		{"array", `[]`, "not a JSON object at offset 0"},
		{"string", ` "x"`, "not a JSON object at offset 1"},
		{"null", `null`, "not a JSON object at offset 0"},
		{"two objects", `{"order_id":"A"}{"order_id":"B"}`, "text after the object at offset 16"},
		{"NUL after the object", "{}\x00", "text after the object at offset 2"},
		{"repeated member", `{"order_id":"A","order_id":"B"}`, "repeated member at offset 16, first at offset 1"},
		{"repeated by an escape", `{"a":1,"\u0061":2}`, "repeated member at offset 7, first at offset 1"},
		{"repeated further down", `{"a":[{"b":1,"b":1}]}`, "repeated member at offset 13, first at offset 7"},
		{"other case", `{"order_id":"A","ORDER_ID":"B"}`, "member at offset 16 differs only by case from the one at offset 1"},
		{"other case further down", `{"a":{"b":1,"B":1}}`, "member at offset 12 differs only by case from the one at offset 6"},
		{"folding beyond ASCII", `{"ks":1,"Kſ":2}`, "member at offset 8 differs only by case from the one at offset 1"},
		{"bad UTF-8", "{\"a\":\"x\xff\"}", "bad UTF-8 at offset 7"},
		{"surrogate as UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "bad UTF-8 at offset 6"},
		{"lone high surrogate", `{"a":"\ud800"}`, "half of a surrogate pair at offset 6"},
		{"lone low surrogate", `{"a":"x\udc00"}`, "half of a surrogate pair at offset 7"},
		{"two high surrogates", `{"a":"\ud800\ud800"}`, "half of a surrogate pair at offset 6"},
		{"surrogate, other escape", `{"a":"\ud800\n"}`, "half of a surrogate pair at offset 6"},
		{"surrogate in a name", `{"\ud800":1}`, "half of a surrogate pair at offset 2"},
		{"short escape", `{"a":"\u12"}`, "unexpected character at offset 8"},
		{"signed escape", `{"a":"\u+123"}`, "unexpected character at offset 8"},
		{"unknown escape", `{"a":"\x41"}`, "unexpected character at offset 7"},
		{"raw control character", "{\"a\":\"x\ny\"}", "unexpected character at offset 7"},
		{"control after an escape", "{\"a\":\"\\n\x01\"}", "unexpected character at offset 8"},
		{"raw NUL", "{\"a\":\"\x00\"}", "unexpected character at offset 6"},
		{"trailing comma", `{"a":1,}`, "unexpected character at offset 7"},
		{"trailing comma in an array", `{"a":[1,]}`, "unexpected character at offset 8"},
		{"no colon", `{"a" 1}`, "unexpected character at offset 5"},
		{"no comma", `{"a":1 "b":2}`, "unexpected character at offset 7"},
		{"no comma in an array", `{"a":[1 2]}`, "unexpected character at offset 8"},
		{"name without quotes", `{a:1}`, "unexpected character at offset 1"},
		{"single quotes", `{'a':1}`, "unexpected character at offset 1"},
		{"comment", `{"a":1/**/}`, "unexpected character at offset 6"},
		{"leading zero", `{"a":01}`, "unexpected character at offset 6"},
		{"plus sign", `{"a":+1}`, "unexpected character at offset 5"},
		{"no digit after the point", `{"a":1.}`, "unexpected character at offset 7"},
		{"no digit in the exponent", `{"a":1e+}`, "unexpected character at offset 8"},
		{"NaN", `{"a":NaN}`, "unexpected character at offset 5"},
		{"half a word", `{"a":tru}`, "unexpected character at offset 5"},
		{"word with a tail", `{"a":trues}`, "unexpected character at offset 9"},
		{"wrong bracket", `{"a":[1}`, "unexpected character at offset 7"},
		{"space unknown to JSON", "{\"a\":\u00a01}", "unexpected character at offset 5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse([]byte(tt.body), 0)
			wantRefusal(t, err, idemstore.Malformed, tt.detail)
		})
	}
}

func TestParseAccepts(t *testing.T) {
	tests := []struct{ name, body string }{
		{"nothing inside", `{}`},
		{"white space around", " \t\r\n{ \"a\" : [ ] , \"b\" : { } } \n"},
		{"every type", `{"a":null,"b":true,"c":false,"d":-0.5E-3,"e":"x","f":[1,[2]],"g":{"h":{}}}`},
		{"every escape", `{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`},
		{"escaped NUL", `{"memo":"x\u0000y"}`},
		{"DEL and line separators", "{\"a\":\"\x7f\u2028\u2029\"}"},
		{"names that differ by more than case", `{"a":1,"á":2,"b":3}`},
		{"sharp s is not ss", `{"ß":1,"ss":2}`},
		{"one name at two levels", `{"a":{"a":{"A":1}}}`},
		{"number beyond every type", `{"a":1e100000,"b":123456789012345678901234567890}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { mustParse(t, tt.body) })
	}
}

func TestParseDecodesStrings(t *testing.T) {
	doc := mustParse(t, `{"a":"x\u0000y \"\\\/\b\f\n\r\t\u00E9\ud83d\ude00é"}`)
	if got, want := doc.root.children[0].text, "x\x00y \"\\/\b\f\n\r\té😀é"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseSize(t *testing.T) {
	body := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}`) }
	for _, size := range []struct{ limit, real int }{{0, 256 << 10}, {100, 100}} {
		if _, err := parse(body(size.real), size.limit); err != nil {
			t.Errorf("%d bytes, limit %d: %v", size.real, size.limit, err)
		}
		_, err := parse(body(size.real+1), size.limit)
		wantRefusal(t, err, idemstore.TooLarge, fmt.Sprintf("body of %d bytes, limit %d: split the job, each part under a key of its "+
			"own, or raise the limit for publishers and workers alike (SETTLE_MAX_BODY, Content.MaxBody) up to max_payload of the NATS "+
			"server", size.real+1, size.real))
	}
}

func TestParseNesting(t *testing.T) {
	nest := func(open, inner, closing string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inner + strings.Repeat(closing, n))
	}
	if _, err := parse(nest(`{"a":`, `1`, `}`, 64), 0); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	_, err := parse(nest(`{"a":`, `1`, `}`, 65), 0)
	wantRefusal(t, err, idemstore.Malformed, "more than 64 levels at offset 320")
	_, err = parse(nest(`{"a":`, `1`, `}`, 10_000), 0)
	wantRefusal(t, err, idemstore.Malformed, "more than 64 levels at offset 320")
	_, err = parse([]byte(`{"a":`+strings.Repeat("[", 200_000)), 0)
	wantRefusal(t, err, idemstore.Malformed, "more than 64 levels at offset 68")
	if _, err := parse([]byte(`{"a":[`+strings.Repeat(`{},`, 1000)+`{}]}`), 0); err != nil {
		t.Errorf("many values side by side: %v", err)
	}
}

// Large objects take the way through a map; both ways must find the same.
func TestParseFindsRepeatsAmongManyMembers(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `"m%d":1,`, i)
	}
	body := "{" + b.String()
	mustParse(t, body+`"n":1}`)
	_, err := parse([]byte(body+`"m5":1}`), 0)
	wantRefusal(t, err, idemstore.Malformed, fmt.Sprintf("repeated member at offset %d, first at offset 36", len(body)))
	_, err = parse([]byte(body+`"M5":1}`), 0)
	wantRefusal(t, err, idemstore.Malformed, fmt.Sprintf("member at offset %d differs only by case from the one at offset 36", len(body)))
}

func TestFoldIsTheFoldingOfEncodingJSON(t *testing.T) {
	for r := rune(0); r <= 0x10FFFF; r++ {
		if 0xD800 <= r && r <= 0xDFFF {
			continue
		}
		name := string(r)
		if f := fold(name); !strings.EqualFold(name, f) || fold(f) != f {
			t.Fatalf("fold(%q) = %q", name, f)
		}
	}
	for _, orbit := range [][]string{{"k", "K", "K"}, {"s", "S", "ſ"}, {"å", "Å", "Å"}, {"θ", "ϑ", "Θ", "ϴ"}} {
		for _, name := range orbit {
			if fold(name) != fold(orbit[0]) {
				t.Errorf("%q and %q fold apart", name, orbit[0])
			}
		}
	}
}

type anyAddress struct {
	Street string `json:"street"`
}

type anyBase struct {
	Tenant string `json:"tenant"`
}

type anyJob struct {
	anyBase
	OrderID  ID                    `json:"order_id"`
	TaskID   int                   `json:"task_id"`
	Amount   json.Number           `json:"amount"`
	Counted  json.Number           `json:"counted,string"`
	Note     *string               `json:"note"`
	Home     *anyAddress           `json:"home"`
	Others   []anyAddress          `json:"others"`
	ByName   map[string]anyAddress `json:"by_name"`
	When     time.Time             `json:"when"`
	Anything any                   `json:"anything"`
	Own      shout                 `json:"own"`
	Untagged int
	Hidden   int `json:"-"`
}

// shout decodes itself, and says too much when it fails.
type shout struct{ Text string }

func (s *shout) UnmarshalJSON(b []byte) error {
	if strings.Contains(string(b), "secret") {
		return fmt.Errorf("cannot decode %s", b)
	}
	s.Text = string(b)
	return nil
}

func TestDecodeJob(t *testing.T) {
	body := `{"order_id":18452,"task_id":42,"amount":12345678901234567890.10,"counted":"7","tenant":"t",
		"home":{"street":"a","unknown":1},"others":[{"street":"b"}],"by_name":{"STREET":{"street":"c"}},
		"when":"2026-11-29T10:00:00Z","anything":{"Anything":9007199254740993},"own":{"TEXT":1,"order_Id":2},
		"Untagged":1,"Hidden":9,"unknown":{"ORDER_ID":1}}`
	got, err := decodeJob[anyJob](mustParse(t, body))
	if err != nil {
		t.Fatal(err)
	}
	want := anyJob{
		anyBase: anyBase{"t"}, OrderID: NewID("18452"), TaskID: 42, Amount: "12345678901234567890.10", Counted: "7",
		Home: &anyAddress{"a"}, Others: []anyAddress{{"b"}}, ByName: map[string]anyAddress{"STREET": {"c"}},
		When:     time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC),
		Anything: map[string]any{"Anything": json.Number("9007199254740993")},
		Own:      shout{`{"TEXT":1,"order_Id":2}`}, Untagged: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestD10MembersThatMatchByCaseOnly(t *testing.T) {
	tests := []struct{ body, detail string }{
		{`{"ORDER_ID":"A"}`, "member ORDER_ID at offset 1: did you mean order_id"},
		{`{"order_id":"A","Task_ID":1}`, "member Task_ID at offset 16: did you mean task_id"},
		{`{"taſk_id":1}`, "member taſk_id at offset 1: did you mean task_id"},
		{`{"untagged":1}`, "member untagged at offset 1: did you mean Untagged"},
		{`{"TENANT":"x"}`, "member TENANT at offset 1: did you mean tenant"},
		{`{"home":{"Street":"x"}}`, "member Street at offset 9: did you mean street"},
		{`{"others":[{},{"STREET":"x"}]}`, "member STREET at offset 15: did you mean street"},
		{`{"by_name":{"x":{"STREET":"x"}}}`, "member STREET at offset 17: did you mean street"},
	}
	for _, tt := range tests {
		_, err := decodeJob[anyJob](mustParse(t, tt.body), "order_id")
		wantRefusal(t, err, idemstore.Malformed, tt.detail)
	}
}

func TestDecodeJobOfOtherTypes(t *testing.T) {
	if m, err := decodeJob[map[string]any](mustParse(t, `{"ORDER_ID":1e2}`)); err != nil || m["ORDER_ID"] != json.Number("1e2") {
		t.Errorf("map: %v, %v", m, err)
	}
	if p, err := decodeJob[*anyAddress](mustParse(t, `{"street":"x"}`)); err != nil || p.Street != "x" {
		t.Errorf("pointer: %v, %v", p, err)
	}
	_, err := decodeJob[*anyAddress](mustParse(t, `{"Street":"x"}`))
	wantRefusal(t, err, idemstore.Malformed, "member Street at offset 1: did you mean street")
	_, err = decodeJob[map[string]int](mustParse(t, `{"secret":"x"}`))
	wantRefusal(t, err, idemstore.Malformed, "a member at offset 10 does not fit int")
	if own, err := decodeJob[shout](mustParse(t, `{"TEXT":1}`)); err != nil || own.Text != `{"TEXT":1}` {
		t.Errorf("own decoding: %v, %v", own, err)
	}
	_, err = decodeJob[shout](mustParse(t, `{"secret":1}`))
	wantRefusal(t, err, idemstore.Malformed, "a member at offset 10 does not fit consumer.shout")
	_, err = decodeJob[[]int](mustParse(t, `{}`))
	wantRefusal(t, err, idemstore.Malformed, "the body does not fit []int")
}

func TestDecodeJobRefusesOtherTypes(t *testing.T) {
	tests := []struct{ body, detail string }{
		{`{"task_id":1.5}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":1.0}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":1e2}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":9223372036854775808}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":"42"}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":true}`, "member task_id at offset 11 does not fit int"},
		{`{"task_id":[]}`, "member task_id at offset 11 does not fit int"},
		{`{"amount":"1200"}`, "the string at offset 10 should be a number"},
		{`{"amount":{}}`, "member amount at offset 10 does not fit json.Number"},
		{`{"note":1}`, "member note at offset 8 does not fit string"},
		{`{"home":{"street":1}}`, "member home at offset 8 does not fit string"},
		{`{"others":{}}`, "member others at offset 10 does not fit []consumer.anyAddress"},
		{`{"when":"secret"}`, "member when at offset 8 does not fit time.Time"},
		{`{"own":"secret"}`, "member own at offset 7 does not fit consumer.shout"},
		{`{"note":1,"home":1}`, "member note at offset 8 does not fit string"},
		{`{"home":1,"note":1}`, "member home at offset 8 does not fit consumer.anyAddress"},
	}
	for _, tt := range tests {
		job, err := decodeJob[anyJob](mustParse(t, tt.body), "order_id")
		wantRefusal(t, err, idemstore.Malformed, tt.detail)
		if !reflect.DeepEqual(job, anyJob{}) {
			t.Errorf("%s: a refused body left %+v", tt.body, job)
		}
	}
}

func TestD13WrongTypeOfAnIDIsABadKey(t *testing.T) {
	for _, value := range []string{`"42"`, `1.5`, `{}`, `false`, `[]`} {
		_, err := decodeJob[anyJob](mustParse(t, `{"x":0,"task_id":`+value+`}`), "order_id", "task_id")
		wantRefusal(t, err, idemstore.BadKey, "member task_id at offset 17 does not fit int")
	}
	_, err := decodeJob[anyJob](mustParse(t, `{"amount":"1"}`), "amount")
	wantRefusal(t, err, idemstore.BadKey, "the string at offset 10 should be a number")
	_, err = decodeJob[anyJob](mustParse(t, `{"TASK_ID":1}`), "task_id", "TASK_ID")
	wantRefusal(t, err, idemstore.Malformed, "member TASK_ID at offset 1: did you mean task_id")
}
