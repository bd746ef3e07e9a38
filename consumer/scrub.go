package consumer

import "strings"

// Text that came from outside (a provider's answer, a driver's error, a handler's panic) may quote what must not be stored
// beside a task, logged, or put on a span: a card, a person's address, a password. It is scrubbed where it enters the engine,
// before it is cut to size, because half a card number does not look like one. Ids have columns of their own, and these are
// never touched; an id in the middle of a text goes if nothing tells it from a card number.

// What stands in the place of what was taken out.
const (
	scrubbedCard   = "[card]"
	scrubbedEmail  = "[email]"
	scrubbedSecret = "[secret]"
)

// scrub takes out of a text:
//
//   - card numbers, see cardAt
//   - e-mail addresses
//   - user, password, query and fragment of URLs
//   - what follows bearer and basic, the values of members and parameters whose names end in password, secret, token and the
//     like, and what begins as well-known tokens do
//
// Scrubbing twice changes nothing more. The time it takes is linear in the text, whatever stands in it.
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

// Scrub takes out of a text from outside what should not be shown: card numbers, e-mail addresses, user, password, query and
// fragment of URLs, passwords and tokens. It is for screens that show a job or a result; what the engine stores beside a task
// and logs is scrubbed already. It does not block, and takes time linear in the text.
func Scrub(text string) string { return scrub(text) }

const (
	mostScrubbed = 64 << 10 // bytes of a text that are looked at: far more than is kept of any
	unsureEnd    = 512      // bytes at the end of a text cut there: half a secret is not known as one
)

// scrubbed is a text as it may be stored and logged: scrubbed, clean and of at most limit bytes.
func scrubbed(s string, limit int) string {
	if len(s) > mostScrubbed {
		s = scrub(s[:mostScrubbed])
		s = cut(s, max(len(s)-unsureEnd, 0))
	} else {
		s = scrub(s)
	}
	text, _ := cleanText([]byte(s), limit)
	return text
}

// errorText is the text of an error as it may be stored and logged.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return scrubbed(err.Error(), maxErrorText)
}

// scrubbedError is an error whose text was not fit to be shown.
type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }

// scrubError is err with a text as errorText has it. It still matches what err matches.
func scrubError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := scrubbed(text, maxErrorText); clean != text {
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
type class uint16

const (
	inDigits  class = 1 << iota // 0-9
	inHex                       // these, and a-f in either case
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
	add(inHex, digits+"abcdefABCDEF")
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
	past := 0 // behind the @ before: no name reaches back over it
	for i := 0; i < len(s); {
		width := atWidth(s[i:])
		if width == 0 {
			i++
			continue
		}
		from := i
		for from > past && is(s[from-1], inMail) {
			from--
		}
		past = i + width
		domain := s[past:]
		domain = strings.TrimRight(domain[:run(domain, inDomain)], ".-")
		if from < i && strings.Trim(domain, ".-0123456789") != "" {
			past += len(domain)
			r.replace(from, past, scrubbedEmail)
		}
		i = past
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

// escapeWidth is the length of an escape of JSON that s begins with, where s begins with a backslash: what stands behind \n,
// \r, \t, \b, \f and \u00a0 begins anew, and the letter is no part of it. 1 if it is none of these.
func escapeWidth(s string) int {
	switch {
	case len(s) >= 2 && strings.IndexByte("nrtbf", s[1]) >= 0:
		return len(`\n`)
	case len(s) >= 6 && s[1] == 'u' && run(s[2:6], inHex) == 4:
		return len(`\u00a0`)
	}
	return 1
}
