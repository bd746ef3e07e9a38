package consumer

import "strings"

// Text that came from outside (a provider's answer, a driver's error, a handler's panic) may quote what must not be stored
// beside a task, logged, or put on a span: a card, a person's address, a password. It is scrubbed where it enters the engine,
// before it is cut to size, because half a card number does not look like one. Ids have columns of their own, and these are
// never touched.

// What stands in the place of what was taken out.
const (
	scrubbedCard   = "[card]"
	scrubbedEmail  = "[email]"
	scrubbedSecret = "[secret]"
)

// scrub takes out of a text:
//
//   - digit runs of 13 to 19 digits that pass the Luhn check, also in groups separated by single spaces or hyphens
//   - e-mail addresses
//   - user, password, query and fragment of URLs
//   - what follows bearer and basic, the values of members and parameters whose names end in password, secret, token and the
//     like, and what begins as well-known tokens do
//
// Scrubbing twice changes nothing more.
func scrub(s string) string {
	if strings.Contains(s, "://") {
		s = scrubURLs(s)
	}
	s = scrubSecrets(s)
	if strings.Contains(s, "@") || strings.Contains(s, "%40") {
		s = scrubEmails(s)
	}
	return scrubCards(s)
}

// errorText is an error as it may be stored and logged: scrubbed, bounded and clean.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text, _ := cleanText([]byte(scrub(err.Error())), maxErrorText)
	return text
}

// scrubbedError is an error whose text was not fit to be shown.
type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }

// scrubError is err with a scrubbed text. It still matches what err matches.
func scrubError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := scrub(text); clean != text {
		return &scrubbedError{clean, err}
	}
	return err
}

// replacing copies a text with pieces of it replaced, from left to right.
type replacing struct {
	in   string
	out  strings.Builder
	kept int // in is copied up to here
}

func (r *replacing) replace(from, to int, by string) {
	r.out.WriteString(r.in[r.kept:from])
	r.out.WriteString(by)
	r.kept = to
}

func (r *replacing) String() string {
	if r.kept == 0 {
		return r.in
	}
	r.out.WriteString(r.in[r.kept:])
	return r.out.String()
}

// class is a set of bytes. Those of runes beyond ASCII are in the sets that texts in any language need.
type class uint8

const (
	inDigits  class = 1 << iota // 0-9
	inWord                      // of a name or an id
	inToken                     // of what follows bearer
	inDomain                    // behind the @ of an address
	inMail                      // before it
	inURL                       // up to what ends one in a sentence, or in quotes
	inAddress                   // of a URL, before query and fragment
	inValue                     // behind name=, without quotes
)

var classes = func() (all [256]class) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const digits = "0123456789"
	add := func(c class, bytes string) {
		for i := range len(bytes) {
			all[bytes[i]] |= c
		}
	}
	add(inDigits, digits)
	add(inWord, letters+digits+"_-")
	add(inToken, letters+digits+"_-=+/.~")
	add(inDomain, letters+digits+"-.")
	add(inMail, letters+digits+"-._%+")
	for b := '!'; b <= 0xff; b++ {
		if b >= 0x80 {
			all[b] |= inDomain | inMail
		}
		if !strings.ContainsRune("\"'`<>\\", b) {
			all[b] |= inURL
			if b != '?' && b != '#' {
				all[b] |= inAddress
			}
		}
		if !strings.ContainsRune("\"'\\,;&<>(){}[]`", b) {
			all[b] |= inValue
		}
	}
	return all
}()

func is(b byte, c class) bool { return classes[b]&c != 0 }

// run counts the bytes of a class that s begins with.
func run(s string, c class) int {
	for i := range len(s) {
		if !is(s[i], c) {
			return i
		}
	}
	return len(s)
}

// scrubURLs hides user, password, query and fragment. A password with a character that should have been escaped may stand
// anywhere before the last @, so all of that goes.
func scrubURLs(s string) string {
	r := replacing{in: s}
	for at := 0; ; {
		n := strings.Index(s[at:], "://")
		if n < 0 {
			return r.String()
		}
		from := at + n + len("://")
		to := from + run(s[from:], inURL)
		query := from + run(s[from:to], inAddress)
		if user := lastUserByte(s[from:to], query-from); user >= 0 {
			r.replace(from, from+user, scrubbedSecret)
			query = max(query, from+user)
		}
		if query < to && s[query] != '@' {
			r.replace(query+1, to, scrubbedSecret)
		}
		at = to
	}
}

// lastUserByte is where user and password of an address end, at their @; -1 if there are none. An @ in the query is theirs
// only if what stands before looks like a password and not like a port.
func lastUserByte(address string, query int) int {
	if at := strings.LastIndexByte(address[:query], '@'); at >= 0 {
		return at
	}
	host, _, _ := strings.Cut(address[:query], "/")
	if _, port, found := strings.Cut(host, ":"); found && strings.Trim(port, "0123456789") != "" {
		return strings.LastIndexByte(address, '@')
	}
	return -1
}

// scrubEmails hides addresses, also where the @ is escaped as in a query.
func scrubEmails(s string) string {
	r := replacing{in: s}
	for i := 0; i < len(s); i++ {
		width := atWidth(s[i:])
		if width == 0 {
			continue
		}
		from := i
		for from > r.kept && is(s[from-1], inMail) {
			from--
		}
		domain := s[i+width:]
		domain = strings.TrimRight(domain[:run(domain, inDomain)], ".-")
		if from < i && strings.Trim(domain, ".-0123456789") != "" {
			r.replace(from, i+width+len(domain), scrubbedEmail)
			i = r.kept - 1
		}
	}
	return r.String()
}

// atWidth is the length of an @ that s begins with, plain or escaped.
func atWidth(s string) int {
	for _, at := range []string{"@", "%40"} {
		if strings.HasPrefix(s, at) {
			return len(at)
		}
	}
	return 0
}

// Card numbers have 13 to 19 digits (ISO/IEC 7812).
const (
	fewestCardDigits = 13
	mostCardDigits   = 19
)

// scrubCards hides card numbers. A number that a letter or an underscore stands next to is part of an id.
func scrubCards(s string) string {
	r := replacing{in: s}
	for i := 0; i < len(s); {
		if !isDigit(s[i]) {
			i++
			continue
		}
		end := i + run(s[i:], inDigits)
		if to := cardAt(s, i); to > 0 {
			r.replace(i, to, scrubbedCard)
			end = to
		}
		i = end
	}
	return r.String()
}

// cardAt is the end of the longest card number that begins at i, where a group of digits does; 0 if there is none.
func cardAt(s string, i int) (end int) {
	if i > 0 && is(s[i-1], inWord) && s[i-1] != '-' {
		return 0
	}
	digits := 0
	var number [mostCardDigits]byte
	for at := i; ; {
		to := at + run(s[at:], inDigits)
		if digits+to-at > mostCardDigits {
			return end
		}
		digits += copy(number[digits:], s[at:to])
		if digits >= fewestCardDigits && (to == len(s) || !is(s[to], inWord) || s[to] == '-') && luhn(number[:digits]) {
			end = to
		}
		if to+1 >= len(s) || s[to] != ' ' && s[to] != '-' || !isDigit(s[to+1]) {
			return end
		}
		at = to + 1
	}
}

// luhn is the check sum of ISO/IEC 7812. A row of zeros passes it and is no card.
func luhn(digits []byte) bool {
	sum, all := 0, 0
	for i := range digits {
		d := int(digits[len(digits)-1-i] - '0')
		all += d
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0 && all > 0
}
