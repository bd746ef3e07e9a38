package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text that came from outside must never make "save the failure" fail: Postgres takes neither a NUL nor bad
// UTF-8 in text (SQLSTATE 22021), and jsonb neither \u0000 nor a number beyond numeric (22P05, 22003).

const (
	cutMark         = "… [cut]"
	replacement     = string(utf8.RuneError)
	replacedEscape  = `\ufffd`
	maxNumberDigits = 1000 // before or after the point, written out: the largest precision numeric can declare
)

// cleanText makes s fit for a text column of at most limit bytes: NUL and each byte of bad UTF-8 become U+FFFD,
// and a longer text is cut between two runes and marked at its end. The flag says that something was changed.
func cleanText(s []byte, limit int) (text string, altered bool) {
	var b strings.Builder
	b.Grow(min(len(s), limit+utf8.UTFMax))
	for len(s) > 0 && b.Len() <= limit {
		r, size := utf8.DecodeRune(s)
		if r == 0 || r == utf8.RuneError && size == 1 {
			altered = true
			r = utf8.RuneError
		}
		b.WriteRune(r)
		s = s[size:]
	}
	if b.Len() <= limit {
		return b.String(), altered
	}
	return cut(b.String(), limit), true
}

// cut shortens valid UTF-8 to at most limit bytes, mark included where it fits.
func cut(text string, limit int) string {
	mark := cutMark
	if len(mark) > limit {
		mark = ""
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// cleanJSON makes b fit to be stored as JSON text of at most limit bytes and to be cast to jsonb later. What
// cannot be kept is replaced: \u0000, halves of surrogate pairs and bad UTF-8 by U+FFFD, a number of more than
// a thousand digits before or after the point by a string of the same text. A text that is too long becomes
// {"truncated":true,"size":N}, one that is not JSON {"invalid":true,"size":N}, N being its size in bytes. The
// flag says that something was changed. The answer may share memory with b.
func cleanJSON(b []byte, limit int) (clean []byte, altered bool) {
	if len(b) > limit {
		return stub("truncated", len(b)), true
	}
	clean = bytes.ToValidUTF8(b, []byte(replacement))
	if !json.Valid(clean) {
		return stub("invalid", len(b)), true
	}
	clean = replaceUnstorable(clean)
	if len(clean) > limit {
		return stub("truncated", len(b)), true
	}
	return clean, !bytes.Equal(clean, b)
}

func stub(what string, size int) []byte { return fmt.Appendf(nil, `{"%s":true,"size":%d}`, what, size) }

// replaceUnstorable goes through valid JSON token by token.
func replaceUnstorable(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		n := 1
		switch c := in[i]; {
		case c == '"':
			n = stringLength(in[i:])
			out = appendStorableString(out, in[i:i+n])
		case c == '-' || isDigit(c):
			n = numberLength(in[i:])
			out = appendStorableNumber(out, in[i:i+n])
		default:
			out = append(out, c)
		}
		i += n
	}
	return out
}

// stringLength measures the string literal that in begins with, quotes included.
func stringLength(in []byte) int {
	for i := 1; ; i++ {
		switch in[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

func numberLength(in []byte) int {
	n := bytes.IndexFunc(in, func(r rune) bool { return !strings.ContainsRune("+-.eE0123456789", r) })
	if n < 0 {
		return len(in)
	}
	return n
}

// appendStorableString copies a string literal. An escape is looked at as a whole, so that \\u0000, which is a
// backslash and five characters, stays.
func appendStorableString(out, literal []byte) []byte {
	for i := 0; i < len(literal); {
		if literal[i] != '\\' {
			out = append(out, literal[i])
			i++
			continue
		}
		escape, n := storableEscape(literal[i:])
		out = append(out, escape...)
		i += n
	}
	return out
}

// storableEscape returns what the escape that in begins with is replaced by, and how much of in that takes.
func storableEscape(in []byte) (escape []byte, n int) {
	if in[1] != 'u' {
		return in[:2], 2
	}
	r, _ := parseHex(string(in[2:6]))
	if r == 0 {
		return []byte(replacedEscape), 6
	}
	if !utf16.IsSurrogate(r) {
		return in[:6], 6
	}
	if len(in) >= 12 && in[6] == '\\' && in[7] == 'u' {
		low, _ := parseHex(string(in[8:12]))
		if utf16.DecodeRune(r, low) != utf8.RuneError {
			return in[:12], 12
		}
	}
	return []byte(replacedEscape), 6
}

func appendStorableNumber(out, literal []byte) []byte {
	if fitsNumeric(string(literal)) {
		return append(out, literal...)
	}
	out = append(out, '"')
	out = append(out, literal...)
	return append(out, '"')
}

// fitsNumeric reports whether a number, written out, has at most maxNumberDigits on either side of the point.
// It looks at the literal's own zeros too, because the database does.
func fitsNumeric(literal string) bool {
	_, digits, fraction, exponent := splitNumber(literal)
	e, err := strconv.Atoi(exponent)
	if exponent != "" && err != nil {
		return false
	}
	if e < -2*maxNumberDigits || e > 2*maxNumberDigits {
		return false
	}
	return len(digits)-fraction+e <= maxNumberDigits && fraction-e <= maxNumberDigits
}
