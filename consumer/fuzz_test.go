package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

func FuzzParse(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `[]`, `{"a":1}`, benchmarkBody, "\uFEFF{}", `{"a":1}{"a":2}`, `{"a":1,"a":2}`, `{"k":1,"K":2}`,
		`{"order_id":9007199254740993,"sent_at":"x"}`, `{"a":[1.0,-0,1e100000,10e-1],"b":{"c":[null,true,false]}}`,
		`{"a":"\u0000\ud83d\ude00\"\\\/"}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":` + strings.Repeat("[", 100),
		`{"":"","\u0000":0e9}`, `{"a":1e99999999999999999999}`,
	} {
		f.Add([]byte(body))
	}
	content := Content{Volatile: []string{"sent_at"}, IDs: []string{"order_id"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := parse(body, 0)
		if err != nil {
			return
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("accepted %q", body)
		}
		hash := doc.hash(content)
		again, err := parse(rewrite(nil, &doc.root), 10<<20)
		if err != nil {
			t.Fatalf("own spelling refused: %v", err)
		}
		if !bytes.Equal(again.canonical(Content{}), doc.canonical(Content{})) {
			t.Fatalf("canonical forms of %q and %q differ", body, again.body)
		}
		if !bytes.Equal(again.hash(content), hash) {
			t.Fatalf("hashes of %q and %q differ", body, again.body)
		}
	})
}

// rewrite spells a value differently: members in reverse order, every rune of a string escaped, white space
// everywhere, integers with a fraction.
func rewrite(dst []byte, n *node) []byte {
	switch n.kind {
	case nullNode, trueNode, falseNode:
		dst = append(dst, map[nodeKind]string{nullNode: "null", trueNode: "true", falseNode: "false"}[n.kind]...)
	case numberNode:
		dst = append(dst, n.text...)
		if isIntegerLiteral(n.text) && n.name != "order_id" { // an id is an id only without a fraction
			dst = append(dst, ".000e+00"...)
		}
	case stringNode:
		dst = rewriteString(dst, n.text)
	case arrayNode:
		dst = append(dst, "[\n"...)
		for i := range n.children {
			dst = rewrite(append(dst, separator(i)...), &n.children[i])
		}
		dst = append(dst, " ]"...)
	case objectNode:
		dst = append(dst, "{\t"...)
		for i := range n.children {
			m := &n.children[len(n.children)-1-i]
			dst = rewriteString(append(dst, separator(i)...), m.name)
			dst = rewrite(append(dst, " : "...), m)
		}
		dst = append(dst, " }"...)
	}
	return dst
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return " ,\r\n"
}

func rewriteString(dst []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for _, r := range text {
		if r > 0xFFFF {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	return append(dst, '"')
}

func FuzzDecodeJob(f *testing.F) {
	for _, body := range []string{
		`{"order_id":1,"task_id":2,"amount":3}`, `{"ORDER_ID":1}`, `{"amount":"1"}`, `{"home":{"Street":1}}`,
		`{"when":"secret-value"}`, `{"others":[{"street":"secret-value"}],"by_name":{"x":{"street":5}}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, err := parse(body, 0)
		if err != nil {
			return
		}
		_, err = decodeJob[anyJob](doc, "order_id")
		if err == nil {
			return
		}
		if refusal, ok := errors.AsType[*refusalError](err); !ok || strings.Contains(refusal.detail, "secret") {
			t.Fatalf("error %T: %v", err, err)
		}
	})
}

func FuzzKey(f *testing.F) {
	for _, key := range []string{"", " ", "order_18452", "a\x00", "é\u0085", "\xff", strings.Repeat("x", 513)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if checkKey(key) != nil {
			return
		}
		if len(key) == 0 || len(key) > 512 || !utf8.ValidString(key) || strings.ContainsRune(key, 0) || strings.TrimSpace(key) == "" {
			t.Fatalf("accepted %q", key)
		}
	})
}

func FuzzProviderKey(f *testing.F) {
	f.Add("payment.charge", "order_1", "order_2", "order_")
	f.Add("payment.charge", "order_1", "s1-0", "s1-")
	f.Add("k", "a b", "a\x7fb", "a")
	f.Fuzz(func(t *testing.T, kind, key, other, prefix string) {
		got := providerKey(kind, key, prefix)
		if len(got) == 0 || len(got) > 64 || !isPrintable(got) {
			t.Fatalf("key %q became %q", key, got)
		}
		if plain := got == key; plain == isDerived(got) || plain && (prefix == "" || !strings.HasPrefix(key, prefix)) {
			t.Fatalf("key %q with prefix %q became %q", key, prefix, got)
		}
		if key != other && got == providerKey(kind, other, prefix) {
			t.Fatalf("%q and %q share %q", key, other, got)
		}
	})
}

func FuzzCleanText(f *testing.F) {
	f.Add([]byte("a\x00\xffé😀"), 5)
	f.Add([]byte(strings.Repeat("é", 50)), 20)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		if limit < 0 || limit > 1<<20 {
			return
		}
		text, altered := cleanText(in, limit)
		if len(text) > limit || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("%q became %q", in, text)
		}
		if altered == (text == string(in)) {
			t.Fatalf("%q became %q, altered %v", in, text, altered)
		}
	})
}

func FuzzCleanJSON(f *testing.F) {
	for _, in := range []string{
		``, `{}`, `{"a":"\u0000"}`, `{"a":"\\u0000"}`, `["\ud800\ud83d\ude00"]`, `[1e100000,-0.5,1]`, "[\"\xff\"]", `"\\\u0000\""`, `[`,
		`{"a":1e999,"b":[1e-1001,true]}`,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, altered := cleanJSON(in, 4096)
		if len(out) > 4096 || !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		if altered == bytes.Equal(in, out) {
			t.Fatalf("%q became %q, altered %v", in, out, altered)
		}
		if bytes.Contains(bytes.ReplaceAll(out, []byte(`\\`), nil), []byte(`\u0000`)) {
			t.Fatalf("%q keeps a NUL in %q", in, out)
		}
		if again, altered := cleanJSON(out, 4096); altered {
			t.Fatalf("%q, cleaned again, became %q", out, again)
		}
	})
}

// Headers are what any publisher writes. An answer goes only below the two prefixes, to a plain subject; a trace context is
// a valid one or none; and neither depends on how the names are spelt.
func FuzzHeaders(f *testing.F) {
	for _, reply := range []string{"", "_INBOX.a.b", "settle.reply.shop7", "$JS.API.STREAM.DELETE.JOBS", "_INBOX.", "_INBOX.a..b", "_INBOX.*", "_INBOX.a\r\nPUB jobs.x 0",
		"settle.reply.>", "jobs.payment.charge", "_INBOX." + strings.Repeat("x", 300)} {
		f.Add(headerReply, reply, headerTraceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	}
	f.Add("settle-reply", "_INBOX.a", "Traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01")
	f.Add("SETTLE-REPLY", "_INBOX.\u00e9", "ce-traceparent", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\x00")
	f.Add(headerReply, "", headerTraceparent, "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-\x00\xff")
	f.Add(headerReply, "", headerTraceparent, "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"+strings.Repeat("x", 4000))
	f.Fuzz(func(t *testing.T, replyName, reply, traceName, trace string) {
		h := nats.Header{replyName: {reply}, traceName: {trace}}
		to := replySubject(h)
		if to != "" && (len(to) > maxReply || !isPrintable(to) || strings.ContainsAny(to, " *>") || strings.Contains(to, "..") || strings.HasSuffix(to, ".") ||
			!strings.HasPrefix(to, "_INBOX.") && !strings.HasPrefix(to, "settle.reply.")) {
			t.Fatalf("an answer would go to %q", to)
		}
		if to != "" && ignoresReply(h) {
			t.Fatalf("%q is used and ignored", to)
		}
		origin := originTrace(h)
		if origin != "" && (len(origin) != 55 || !isPrintable(origin) || !spanContextOf(origin).IsValid()) {
			t.Fatalf("the trace context %q", origin)
		}
		if strings.EqualFold(replyName, headerReply) && !strings.EqualFold(traceName, replyName) && to != usableReply(reply) {
			t.Fatalf("%q: %q became %q", replyName, reply, to)
		}
		_, _, err := eventHeaders(h)
		if _, ok := errors.AsType[*refusalError](err); err != nil && !ok && !errors.Is(err, errNoEvent) {
			t.Fatalf("error %T: %v", err, err)
		}
	})
}
