package admin

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/settlemq/settle/consumer"
)

// mostShown bounds what a page shows of a body, in bytes.
const mostShown = 64 << 10

// shown is a body as a person may see it: laid out if it is JSON, with the names of its members, and without card numbers,
// e-mail addresses, passwords and tokens in the values. Escapes are undone first: they hide nothing.
func shown(body []byte) string {
	text, ok := laidOut(body)
	if !ok {
		text = string(body)
	}
	text = consumer.Scrub(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "\n" + bodyCut
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// laidOut is JSON on lines of its own, each string in its shortest spelling. Numbers stay digit for digit, and members in
// their order. It is false for what is no JSON.
func laidOut(body []byte) (string, bool) {
	var flat bytes.Buffer
	if json.Indent(&flat, body, "", "  ") != nil {
		return "", false
	}
	var out strings.Builder
	for rest := flat.Bytes(); len(rest) > 0; {
		at := bytes.IndexByte(rest, '"')
		if at < 0 {
			out.Write(rest)
			break
		}
		end := at + 1
		for rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		out.Write(rest[:at])
		out.WriteString(respelled(rest[at : end+1]))
		rest = rest[end+1:]
	}
	return out.String(), true
}

// respelled is a JSON string with no more escapes than it needs.
func respelled(literal []byte) string {
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return string(literal)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(text) != nil {
		return string(literal)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
