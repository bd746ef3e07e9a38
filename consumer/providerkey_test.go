package consumer

import (
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

func TestD17KeyLimits(t *testing.T) {
	good := map[string]string{
		"one byte":                "x",
		"300 bytes":               strings.Repeat("ab", 150),
		"512 bytes":               strings.Repeat("x", 512),
		"padding is kept":         " order 7 ",
		"runes of all kinds":      "Bestellung-é-😀-\u00a0",
		"512 bytes of long runes": strings.Repeat("é", 256),
	}
	for name, key := range good {
		if err := checkKey(key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := []struct{ name, key, detail string }{
		{"empty", "", "key is empty"},
		{"513 equal bytes", strings.Repeat("x", 513), "key of 513 bytes, limit 512"},
		{"4096 bytes", strings.Repeat("x", 4096), "key of 4096 bytes, limit 512"},
		{"513 bytes in fewer runes", strings.Repeat("é", 256) + "x", "key of 513 bytes, limit 512"},
		{"bad UTF-8", "a\xff", "key is not valid UTF-8"},
		{"spaces", "   ", "key is only white space"},
		{"tab", "\t", "key is only white space"},
		{"no-break space", "\u00a0", "key is only white space"},
		{"NUL", "a\x00", "key has a control character at byte 1"},
		{"newline", "order\n7", "key has a control character at byte 5"},
		{"DEL", "\x7f", "key has a control character at byte 0"},
		{"C1", "é\u0085x", "key has a control character at byte 2"},
	}
	for _, tt := range bad {
		t.Run(tt.name, func(t *testing.T) { wantRefusal(t, checkKey(tt.key), idemstore.BadKey, tt.detail) })
	}
}

func TestCheckKindName(t *testing.T) {
	for _, name := range []string{"a", "payment.charge", "a1_.b2", strings.Repeat("a", 64)} {
		if err := checkKindName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	bad := []string{
		"", ".", "a.", ".a", "a..b", "A", "1a", "_a", "a.1", "a-b", "a/b", "a b", "a*", "a.>", "é", "a\n", strings.Repeat("a", 65),
	}
	for _, name := range bad {
		if checkKindName(name) == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestNamesOfAKind(t *testing.T) {
	if got := subject("payment.charge"); got != "jobs.payment.charge" {
		t.Errorf("subject %s", got)
	}
	if got := consumerName("payment.charge.eu_1"); got != "payment-charge-eu_1" {
		t.Errorf("consumer %s", got)
	}
}

func TestProviderKey(t *testing.T) {
	tests := []struct{ name, key, prefix, want string }{ // want is empty for a derived key
		{"plain", "order_18452", "order_", "order_18452"},
		{"plain, 64 bytes", "order_" + strings.Repeat("1", 58), "order_", "order_" + strings.Repeat("1", 58)},
		{"no prefix", "order_18452", "", ""},
		{"other prefix", "invoice_1", "order_", ""},
		{"65 bytes", "order_" + strings.Repeat("1", 59), "order_", ""},
		{"space", "order_1 2", "order_", ""},
		{"beyond ASCII", "order_é", "order_", ""},
		{"DEL", "order_\x7f", "order_", ""},
		{"looks derived", "s1-order", "s1", ""},
		{"prefix of other case", "Order_1", "order_", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := providerKey("payment.charge", tt.key, tt.prefix)
			if tt.want != "" && got != tt.want {
				t.Errorf("got %s", got)
			}
			if tt.want == "" && !isDerived(got) {
				t.Errorf("got %s, want a derived key", got)
			}
		})
	}
}

// Providers hold these keys: a build that derives others repeats effects.
func TestProviderKeyIsTheSameInEveryBuild(t *testing.T) {
	if got, want := providerKey("payment.charge", "a b", "order_"), "s1-e4d7d7a3fb16ae0aa1f6c2bff1a98448ef447df7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if providerKey("payment.charge", "x", "") == providerKey("payment.refund", "x", "") {
		t.Error("two kinds share a derived key")
	}
}

func isDerived(key string) bool {
	return len(key) == 43 && strings.HasPrefix(key, "s1-") && strings.Trim(key[3:], "0123456789abcdef") == ""
}

func TestMessageID(t *testing.T) {
	hash := []byte("0123456789abcdef0123456789abcdef")
	id := messageID("payment.charge", "order_1", hash)
	if want := "93447ef51515f42fd139334da9c1555ff2f9d4abea5481751a88e9c1f02dc542"; id != want {
		t.Errorf("got %s, want %s", id, want)
	}
	others := []string{
		messageID("payment.charge", "order_2", hash),
		messageID("payment.refund", "order_1", hash),
		messageID("payment.charge", "order_1", []byte("0123456789abcdef0123456789abcdeX")),
	}
	for _, other := range others {
		if other == id {
			t.Error("two different messages share an id")
		}
	}
}

func TestCheckPrefixes(t *testing.T) {
	good := [][]prefixOf{
		nil,
		{{"a", "p", "order_"}, {"b", "p", "report-"}, {"c", "q", "order_1"}, {"d", "p", ""}, {"e", "p", ""}},
		{{"a", "p", "order_"}, {"a", "p", "order_"}},
		{{"a", "p", "S1-"}, {"b", "p", strings.Repeat("x", 32)}},
	}
	for _, prefixes := range good {
		if err := checkPrefixes(prefixes); err != nil {
			t.Errorf("%v: %v", prefixes, err)
		}
	}
	bad := []struct {
		prefixes []prefixOf
		want     string
	}{
		{[]prefixOf{{"b", "p", "order_1"}, {"a", "p", "order_"}}, `kinds a and b: key prefix "order_" begins "order_1" at the same provider`},
		{[]prefixOf{{"b", "p", "x_"}, {"a", "p", "x_"}}, `kinds a and b: key prefix "x_" begins "x_" at the same provider`},
		{[]prefixOf{{"a", "p", "s1-x"}}, `kind a: key prefix "s1-x" meets "s1-", which derived keys begin with`},
		{[]prefixOf{{"a", "p", "s"}}, `kind a: key prefix "s" meets "s1-", which derived keys begin with`},
		{[]prefixOf{{"a", "p", "or der"}}, `kind a: key prefix "or der" is not printable ASCII`},
		{[]prefixOf{{"a", "p", "é"}}, `kind a: key prefix "é" is not printable ASCII`},
		{[]prefixOf{{"a", "p", strings.Repeat("x", 33)}}, `kind a: key prefix of 33 bytes, limit 32`},
	}
	for _, tt := range bad {
		if err := checkPrefixes(tt.prefixes); err == nil || err.Error() != tt.want {
			t.Errorf("%v\ngot  %v\nwant %s", tt.prefixes, err, tt.want)
		}
	}
}
