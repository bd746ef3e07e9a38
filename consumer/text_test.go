package consumer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestD16CleanText(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
		altered  bool
	}{
		{"good text", "card declined: é😀\n", 100, "card declined: é😀\n", false},
		{"empty", "", 100, "", false},
		{"NUL", "a\x00b", 100, "a\uFFFDb", true},
		{"bad bytes", "a\xff\xfeb", 100, "a\uFFFD\uFFFDb", true},
		{"cut rune at the end", "a\xe2\x82", 100, "a\uFFFD\uFFFD", true},
		{"surrogate", "\xed\xa0\x80", 100, "\uFFFD\uFFFD\uFFFD", true},
		{"a replacement character of its own", "\uFFFD", 100, "\uFFFD", false},
		{"exactly full", strings.Repeat("x", 20), 20, strings.Repeat("x", 20), false},
		{"one too long", strings.Repeat("x", 21), 20, strings.Repeat("x", 11) + "… [cut]", true},
		{"cut between runes", strings.Repeat("é", 20), 20, strings.Repeat("é", 5) + "… [cut]", true},
		{"too long only when cleaned", strings.Repeat("\x00", 10), 20, strings.Repeat("\uFFFD", 3) + "… [cut]", true},
		{"no room for the mark", "abcdefgh", 4, "abcd", true},
		{"no room for a rune", "😀", 3, "", true},
		{"no room at all", "x", 0, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, altered := cleanText([]byte(tt.in), tt.limit)
			if got != tt.want || altered != tt.altered {
				t.Errorf("got %q, %v, want %q, %v", got, altered, tt.want, tt.altered)
			}
		})
	}
}

func TestD16CleanJSON(t *testing.T) {
	zeros := strings.Repeat("0", 1000)
	tests := []struct{ name, in, want string }{
		{"good", `{"id":"ch_1","n":[1,-2.5e3,true,null],"s":"é\n\ud83d\ude00"}`, ``},
		{"escaped NUL", `{"id":"ch_1","note":"\u0000"}`, `{"id":"ch_1","note":"\ufffd"}`},
		{"escaped NUL in a name", `{"\u0000":1}`, `{"\ufffd":1}`},
		{"escaped backslash before u0000", `{"a":"\\u0000"}`, ``},
		{"escaped backslash, then NUL", `{"a":"\\\u0000"}`, `{"a":"\\\ufffd"}`},
		{"escaped quote, then NUL", `["\"\u0000",1]`, `["\"\ufffd",1]`},
		{"lone high surrogate", `["\ud800"]`, `["\ufffd"]`},
		{"lone low surrogate", `["\uDC00x"]`, `["\ufffdx"]`},
		{"two high ones, then low", `["\ud800\ud83d\ude00"]`, `["\ufffd\ud83d\ude00"]`},
		{"surrogate, then NUL", `["\ud800\u0000"]`, `["\ufffd\ufffd"]`},
		{"surrogate, then letter", `["\ud800\n12345"]`, `["\ufffd\n12345"]`},
		{"bad UTF-8", "[\"a\xff\"]", "[\"a\uFFFD\"]"},
		{"huge number", `{"a":1e100000,"b":-1E+100000}`, `{"a":"1e100000","b":"-1E+100000"}`},
		{"tiny number", `1e-20000`, `"1e-20000"`},
		{"exponent beyond int", `[1e99999999999999999999]`, `["1e99999999999999999999"]`},
		{"zero with an exponent", `[0e99999999]`, `["0e99999999"]`},
		{"largest", `[1e999,1e-1000]`, ``},
		{"too large", `[1e1000]`, `["1e1000"]`},
		{"too small", `[1e-1001]`, `["1e-1001"]`},
		{"many digits", `[1` + zeros + `]`, `["1` + zeros + `"]`},
		{"many digits after the point", `[0.1` + zeros + `]`, `["0.1` + zeros + `"]`},
		{"number in a string", `["1e100000 \u0031"]`, ``},
		{"cut off", `{"a":`, `{"invalid":true,"size":5}`},
		{"empty", ``, `{"invalid":true,"size":0}`},
		{"raw NUL", "\"\x00\"", `{"invalid":true,"size":3}`},
		{"bad UTF-8 outside a string", "\xff", `{"invalid":true,"size":1}`},
		{"too long", `"` + strings.Repeat("x", 2000) + `"`, `{"truncated":true,"size":2002}`},
		{"too long only when cleaned", "\"" + strings.Repeat("a\xff", 800) + `"`, `{"truncated":true,"size":1602}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, wantAltered := tt.want, true
			if want == "" {
				want, wantAltered = tt.in, false
			}
			got, altered := cleanJSON([]byte(tt.in), 2000)
			if string(got) != want || altered != wantAltered {
				t.Errorf("got %s, %v, want %s, %v", got, altered, want, wantAltered)
			}
			if !json.Valid(got) || !utf8.Valid(got) {
				t.Errorf("%q is not JSON in UTF-8", got)
			}
		})
	}
}

func TestD16CleanJSONLeavesItsInputAlone(t *testing.T) {
	const in = `["\u0000",1e100000]`
	b := []byte(in)
	cleanJSON(b, 1000)
	if string(b) != in {
		t.Errorf("input became %s", b)
	}
}
