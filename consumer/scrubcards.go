package consumer

import "strings"

// Card numbers that people pay with have 13 to 19 digits (ISO/IEC 7812).
const (
	fewestCardDigits = 13
	mostCardDigits   = 19
)

// cardLayouts are the sizes of the groups that card numbers are printed in.
var cardLayouts = [...]string{"4444", "44441", "44442", "44443", "465", "464"}

// scrubCards hides card numbers.
func scrubCards(s string) string {
	r := replacing{in: s}
	anew := 0 // behind an escape
	for i := 0; i < len(s); {
		switch {
		case s[i] == '\\':
			i += escapeWidth(s[i:])
			anew = i
			continue
		case !isDigit(s[i]):
			i++
			continue
		}
		end := i + run(s[i:], inDigits)
		if i == anew || cardMayBegin(s, i, r.kept) {
			if to := cardAt(s, i, end); to > 0 {
				r.replace(i, to, scrubbedCard)
				end = to
			}
		}
		i = end
	}
	return r.String()
}

// cardAt is the end of the card number that begins at i, with the digits up to end; 0 if there is none. It takes a network's
// beginning with the length that goes with it, the check sum, and either no separators or those of a printed card. Of random
// ids of 13 to 19 digits fewer than one in twenty look like that, of those that begin with a 4 and are as long one in ten.
func cardAt(s string, i, end int) int {
	if end-i == 4 && end < len(s) && (s[end] == ' ' || s[end] == '-') {
		return groupedCardAt(s, i, s[end])
	}
	if end-i <= mostCardDigits && isCard(s[i:end]) && cardMayEnd(s, end) {
		return end
	}
	return 0
}

// groupedCardAt is cardAt for groups of digits with one separator. The longest layout that fits wins.
func groupedCardAt(s string, i int, separator byte) (end int) {
	var number [mostCardDigits]byte
	var layout [5]byte
	digits := 0
	for n, at := 0, i; n < len(layout); n++ {
		to := at + run(s[at:], inDigits)
		if digits+to-at > len(number) {
			break
		}
		digits += copy(number[digits:], s[at:to])
		layout[n] = '0' + byte(to-at)
		if isCardLayout(string(layout[:n+1])) && isCard(string(number[:digits])) && cardMayEnd(s, to) {
			end = to
		}
		if to+1 >= len(s) || s[to] != separator || !isDigit(s[to+1]) {
			break
		}
		at = to + 1
	}
	return end
}

func isCardLayout(sizes string) bool {
	for _, layout := range cardLayouts {
		if layout == sizes {
			return true
		}
	}
	return false
}

// isCard knows the beginnings and lengths of the networks that people pay with: Diners, American Express and JCB (3),
// Visa (4), Mastercard (5 and 2221 to 2720), Discover, UnionPay and Maestro (6).
func isCard(number string) bool {
	n := len(number)
	if n < fewestCardDigits {
		return false
	}
	fits := false
	switch number[0] {
	case '2':
		fits = n == 16 && "2221" <= number[:4] && number[:4] <= "2720"
	case '3':
		fits = n == lengthOf3(number[1])
	case '4':
		fits = n == 13 || n == 16 || n == 19
	case '5':
		fits = n == 16
	case '6':
		fits = n >= 16
	}
	return fits && luhn(number)
}

// lengthOf3 is the length of a number that begins with a 3 and this digit; 0 if none does.
func lengthOf3(second byte) int {
	switch second {
	case '0', '6', '8', '9':
		return 14
	case '4', '7':
		return 15
	case '5':
		return 16
	}
	return 0
}

// cardMayBegin reports that what stands before i does not make an id of its digits: a letter, an underscore, or a hyphen and
// hexadecimal digits before it. What was replaced up to kept does not count.
func cardMayBegin(s string, i, kept int) bool {
	if i == kept || !is(s[i-1], inWord) {
		return true
	}
	if s[i-1] != '-' {
		return false
	}
	from := i - 1
	for least := max(kept, from-longestHexID); from > least && isHexID(s[from-1]); {
		from--
	}
	inWords := from > kept && is(s[from-1], inWord) && !isHexID(s[from-1])
	return inWords || !looksHex(s[from:i-1])
}

// cardMayEnd reports the same of what stands behind.
func cardMayEnd(s string, end int) bool {
	if end == len(s) || !is(s[end], inWord) {
		return true
	}
	if s[end] != '-' {
		return false
	}
	rest := s[end+1 : min(end+1+longestHexID, len(s))]
	to := 0
	for to < len(rest) && isHexID(rest[to]) {
		to++
	}
	inWords := to < len(rest) && is(rest[to], inWord)
	return inWords || !looksHex(rest[:to])
}

const longestHexID = 36 // bytes that are looked at: a UUID's

func isHexID(b byte) bool { return b == '-' || is(b, inHex) }

// looksHex tells part of a UUID from plain numbers: two dates or two cards may be joined by hyphens too.
func looksHex(s string) bool {
	return len(s) >= 4 && strings.ContainsAny(s, "abcdefABCDEF")
}

// luhn is the check sum of ISO/IEC 7812.
func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
