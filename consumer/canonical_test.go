package consumer

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

func hashOf(t testing.TB, body string, c Content) string {
	t.Helper()
	return hex.EncodeToString(mustParse(t, body).hash(c))
}

// Rows hold these values. If this test fails, do not change what it wants: give hashAlgorithm a new name.
func TestD15HashIsTheSameInEveryBuild(t *testing.T) {
	if hashAlgorithm != "settle-1" {
		t.Fatalf("new algorithm %q: keep these values for settle-1 and add new ones", hashAlgorithm)
	}
	content := Content{Volatile: []string{"sent_at"}, IDs: []string{"order_id"}}
	tests := []struct{ body, want string }{
		{`{}`, "4d74440c32c4fad5c28ebb6cf407a7d3433fbd7ae90cff66354d9353b200b5b7"},
		{`{"order_id":"18452","customer_id":"c_17","amount":1200,"currency":"EUR"}`, "2790c0ad976720a758ff996519b94ffb400dc2451fd00a75b22c605f738e68f6"},
		{`{"currency":"EUR","amount":1.2e3,"customer_id":"c_17","order_id":18452,"sent_at":"2026-11-29T10:00:00Z"}`, "2790c0ad976720a758ff996519b94ffb400dc2451fd00a75b22c605f738e68f6"},
		{`{"task_id":42,"report_type":"monthly"}`, "2890a918bbd271c5d96763a4c2d4d4d6223a3a7ac3f5128a1fa355d101f81b2b"},
		{`{"a":null,"b":true,"c":false,"d":[],"e":{},"f":"","g":[0,-0.50,1e100000,9007199254740993,[1],{"x":"y"}]}`, "ba09a1e5f2554bf6a0c17723ee45573c7b7c390d8f57cff4b3221703152d62e6"},
		{`{"é":"\u0000\ud83d\ude00\n","e\u0301":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`, "7da38025b3c8c04e2370274be23ee3d6e9b0f7ff23591f27c2b60aa6ebebb54b"},
	}
	for _, tt := range tests {
		if got := hashOf(t, tt.body, content); got != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.body, got, tt.want)
		}
	}
}

func TestCanonicalForm(t *testing.T) {
	doc := mustParse(t, `{"b":[1200,-0.5,"é\u0000"],"a":{"y":null,"x":true},"id":7,"sent_at":1,"c":false}`)
	got := doc.canonical(Content{Volatile: []string{"sent_at"}, IDs: []string{"id"}})
	want := "{\x04" + "\x01a" + "{\x02" + "\x01xt" + "\x01yn" +
		"\x01b" + "[\x03" + "#\x0412e2" + "#\x05-5e-1" + "\"\x03é\x00" + "\x01cf" + "\x02id" + "\"\x017"
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// groups of bodies: equal inside a group, different between groups.
func TestD15HashOfEqualContent(t *testing.T) {
	content := Content{Volatile: []string{"sent_at", "trace"}, IDs: []string{"order_id"}}
	groups := [][]string{
		{`{"a":1,"b":2}`, `{ "b":2, "a":1 }`, `{"a":1,"b":2,"sent_at":"now"}`, `{"sent_at":{"x":1},"b":2,"a":1,"trace":null}`,
			`{"\u0061":1.0,"b":2e0}`},
		{`{"a":[1,2]}`, `{"a":[1.0,20e-1]}`, "{\n\t\"a\": [1, 2]\n}"},
		{`{"a":[2,1]}`},
		{`{"a":[1,2],"sent_At":1}`},
		{`{"a":[[1],2]}`},
		{`{"a":{"sent_at":1}}`},
		{`{"a":{"sent_at":2}}`},
		{`{"a":null}`}, {`{"a":false}`}, {`{"a":true}`}, {`{"a":[]}`}, {`{"a":{}}`}, {`{"a":""}`}, {`{"a":"null"}`}, {`{}`},
		{`{"a":0}`, `{"a":-0}`, `{"a":0.000}`, `{"a":0e999999999999999999999}`},
		{`{"a":1}`, `{"a":1.0}`, `{"a":1e0}`, `{"a":10e-1}`, `{"a":0.1E+1}`},
		{`{"a":"1"}`},
		{`{"a":-1}`},
		{`{"order_id":"18452"}`, `{"order_id":18452}`},
		{`{"order_id":18453}`, `{"order_id":"18453"}`},
		{`{"order_id":"18452.0"}`}, {`{"order_id":18452.0}`, `{"order_id":184520e-1}`},
		{`{"x":{"order_id":"18452"}}`}, {`{"x":{"order_id":18452}}`},
		{`{"order_id":9007199254740992}`}, {`{"order_id":9007199254740993}`},
		{`{"a":9007199254740992}`}, {`{"a":9007199254740993}`, `{"a":9007199254740.993e3}`},
		{`{"a":1e100000}`, `{"a":10e99999}`}, {`{"a":1e100001}`},
		{`{"a":1e99999999999999999999999999999999}`, `{"a":0.1e100000000000000000000000000000000}`},
		{`{"a":"é"}`, `{"a":"\u00e9"}`}, {`{"a":"e\u0301"}`},
		{`{"a":"x\u0000y"}`}, {`{"a":"xy"}`}, {`{"a":"😀"}`, `{"a":"\ud83d\uDE00"}`},
		{`{"a":"b\"c"}`}, {`{"a":"b","c":""}`},
		{`{"a":1,"A2":1}`, `{"A2":1,"a":1}`},
	}
	seen := map[string]string{}
	for _, group := range groups {
		first := hashOf(t, group[0], content)
		for _, body := range group[1:] {
			if hashOf(t, body, content) != first {
				t.Errorf("%s and %s differ", group[0], body)
			}
		}
		if twin, ok := seen[first]; ok {
			t.Errorf("%s and %s are equal", group[0], twin)
		}
		seen[first] = group[0]
	}
}

func TestD14HashSeesAnotherAmount(t *testing.T) {
	body := `{"order_id":"18452","customer_id":"c_17","amount":%s,"currency":"EUR"}`
	content := Content{IDs: []string{"order_id"}}
	first := hashOf(t, fmt.Sprintf(body, "100"), content)
	if hashOf(t, fmt.Sprintf(body, "999"), content) == first {
		t.Error("100 and 999 are the same content")
	}
	if hashOf(t, fmt.Sprintf(body, "100"), content) != first {
		t.Error("the same body hashes differently the second time")
	}
}

func TestHashLeavesTheDocumentAsItIs(t *testing.T) {
	doc := mustParse(t, `{"sent_at":1,"order_id":7,"z":3}`)
	plain := doc.hash(Content{})
	doc.hash(Content{Volatile: []string{"sent_at"}, IDs: []string{"order_id"}})
	if !bytes.Equal(plain, doc.hash(Content{})) {
		t.Error("hashing changed the document")
	}
}

func TestDecimal(t *testing.T) {
	tests := map[string]string{
		"0": "0", "-0": "0", "0.00e5": "0", "1": "1e0", "-1": "-1e0", "100": "1e2", "1200": "12e2", "0.0012": "12e-4",
		"12.50": "125e-1", "-12.50E+3": "-125e2", "1e-0": "1e0", "1e007": "1e7", "1e100000": "1e100000",
		"12345678901234567890.10":           "123456789012345678901e-1",
		"1.5e999999999999999999":            "15e999999999999999998",
		"10e999999999999999999999":          "1e1000000000000000000000",
		"0.01e-999999999999999999999":       "1e-1000000000000000000001",
		"1e0000000000000000000000000000007": "1e7",
	}
	for literal, want := range tests {
		if got := decimal(literal); got != want {
			t.Errorf("decimal(%s) = %s, want %s", literal, got, want)
		}
	}
}

func TestAddExponentIsExact(t *testing.T) {
	nines, zeros := strings.Repeat("9", 40), strings.Repeat("0", 40)
	exponents := []string{
		"0", "-0", "7", "-7", "007", "999999999999999999", "1000000000000000000", "9999999999999999999", "1" + zeros, nines,
		"5" + nines, "12" + zeros, "-1" + zeros, "-" + nines, "0000" + nines, "-1000000000000000000", "10" + nines + "0",
	}
	for _, exponent := range exponents {
		for _, shift := range []int{0, 1, -1, 9, -9, 262144, -262144} {
			want, _ := new(big.Int).SetString(exponent, 10)
			want.Add(want, big.NewInt(int64(shift)))
			if got := addExponent(exponent, shift); got != want.String() {
				t.Errorf("%s + %d = %s, want %s", exponent, shift, got, want)
			}
		}
	}
}

// A body that is one long exponent must cost no more than any other of its size.
func BenchmarkHashOfALongExponent(b *testing.B) {
	doc := mustParse(b, `{"a":10e`+strings.Repeat("9", 250_000)+`}`)
	b.ReportAllocs()
	for b.Loop() {
		doc.hash(Content{})
	}
}

const benchmarkBody = `{"order_id":"18452","customer_id":"c_17","amount":1200.50,"currency":"EUR",` +
	`"sent_at":"2026-11-29T10:00:00Z","memo":"line one\nline two","items":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}]}`

func BenchmarkParseAndHash(b *testing.B) {
	content := Content{Volatile: []string{"sent_at"}, IDs: []string{"order_id"}}
	bodies := []struct{ name, body string }{
		{"small", benchmarkBody},
		{"256KiB", `{"items":[` + strings.Repeat(benchmarkBody+",", 1100) + `0]}`},
	}
	for _, bm := range bodies {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(int64(len(bm.body)))
			b.ReportAllocs()
			for b.Loop() {
				mustParse(b, bm.body).hash(content)
			}
		})
	}
}

func BenchmarkDecodeJob(b *testing.B) {
	doc := mustParse(b, `{"order_id":"18452","task_id":42,"amount":1200,"home":{"street":"a"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeJob[anyJob](doc); err != nil {
			b.Fatal(err)
		}
	}
}
