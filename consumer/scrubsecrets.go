package consumer

import "strings"

// announced is how much a name says of the value behind it.
type announced int

const (
	noSecret    announced = iota
	maybeSecret           // unless quoted or behind an equals sign, the value may be a word of a sentence
	sureSecret            // any value is one, also a word
	wholeLine             // a header of many schemes: the rest of the line
)

type secretName struct {
	end   string
	value announced
}

// secretNames end the names of members, parameters and headers whose values are secret, without hyphens and underscores.
var secretNames = []secretName{
	{"password", sureSecret}, {"passwd", sureSecret}, {"passphrase", sureSecret}, {"pwd", sureSecret}, {"secret", sureSecret},
	{"authorization", wholeLine},
	{"token", maybeSecret}, {"apikey", maybeSecret}, {"accesskey", maybeSecret}, {"privatekey", maybeSecret},
	{"credential", maybeSecret}, {"credentials", maybeSecret}, {"cookie", maybeSecret}, {"jwt", maybeSecret},
	{"cvc", maybeSecret}, {"cvv", maybeSecret},
}

// namesByLast are the names by their last letter: each word of a text is looked up.
var namesByLast = func() (all [256][]secretName) {
	for _, name := range secretNames {
		last := name.end[len(name.end)-1]
		all[last] = append(all[last], name)
	}
	return all
}()

// secretBeginnings begin tokens that say what they are.
var secretBeginnings = []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-",
	"xoxb-", "xoxp-", "AKIA", "eyJ"}

const shortestSecret = 6 // bytes: shorter ones are words

// scrubSecrets hides passwords and tokens, by what stands before them or by how they begin.
func scrubSecrets(s string) string {
	r := replacing{in: s}
	for i := 0; i < len(s); {
		if !is(s[i], inWord) {
			i++
			continue
		}
		end := i + run(s[i:], inWord)
		from, to := secretAt(s, i, end)
		if from < to {
			r.replace(from, to, scrubbedSecret)
			end = to
		}
		i = end
	}
	return r.String()
}

// secretAt is the secret that the word from i to end is, or announces. An empty one is none.
func secretAt(s string, i, end int) (from, to int) {
	if value := announcedBy(s[i:end]); value != noSecret {
		return valueAfter(s, end, value)
	}
	if from, to = tokenAt(s, i, end); from < to || i == 0 || s[i-1] != '\\' {
		return from, to
	}
	return tokenAt(s, min(i-1+escapeWidth(s[i-1:]), end), end)
}

// tokenAt is the token that the word is, or the one behind a scheme.
func tokenAt(s string, i, end int) (from, to int) {
	switch word := s[i:end]; {
	case isScheme(word):
		return tokenAfter(s, end)
	case startsSecret(word):
		return i, i + run(s[i:], inToken)
	}
	return 0, 0
}

func isScheme(word string) bool {
	return strings.EqualFold(word, "bearer") || strings.EqualFold(word, "basic")
}

func startsSecret(word string) bool {
	for _, beginning := range secretBeginnings {
		if strings.HasPrefix(word, beginning) && len(word) >= len(beginning)+10 {
			return true
		}
	}
	return false
}

// announcedBy is what a name says of its value. A token for idempotency is meant to be seen.
func announcedBy(word string) announced {
	word = strings.TrimRight(word, "-_")
	if word == "" {
		return noSecret
	}
	for _, name := range namesByLast[word[len(word)-1]|0x20] {
		if endsWithName(word, name.end) {
			if containsFold(word, "idempotency") {
				return noSecret
			}
			return name.value
		}
	}
	return noSecret
}

func containsFold(s, part string) bool {
	for ; len(s) >= len(part); s = s[1:] {
		if strings.EqualFold(s[:len(part)], part) {
			return true
		}
	}
	return false
}

// endsWithName compares without case, hyphens and underscores, and without making a text.
func endsWithName(word, name string) bool {
	at := len(word)
	for n := len(name) - 1; n >= 0; n-- {
		for at--; at >= 0 && (word[at] == '-' || word[at] == '_'); at-- {
		}
		if at < 0 || word[at]|0x20 != name[n] {
			return false
		}
	}
	return true
}

// tokenAfter is the token behind a scheme. "Basic authentication failed" has none.
func tokenAfter(s string, at int) (from, to int) {
	from = at + len(s[at:]) - len(strings.TrimLeft(s[at:], " "))
	if from == at {
		return 0, 0
	}
	to = from + run(s[from:], inToken)
	if !looksSecret(s[from:to]) {
		return 0, 0
	}
	return from, to
}

// valueAfter is the value behind a name: name=value, name: value, "name":"value", name:[value].
func valueAfter(s string, at int, value announced) (from, to int) {
	at += len(s[at:]) - len(strings.TrimLeft(s[at:], "\"'\\ "))
	if at == len(s) || s[at] != '=' && s[at] != ':' {
		return 0, 0
	}
	if s[at] == '=' && value == maybeSecret {
		value = sureSecret
	}
	from, quote := valueBegin(s, at+1)
	switch {
	case quote != 0:
		return quoted(s, from, quote)
	case value == maybeSecret:
		return likelyValue(s, from)
	case from < len(s) && (s[from] == '[' || s[from] == '{') && !strings.HasPrefix(s[from:], scrubbedSecret):
		return notScrubbed(s, from+1, bracketEnd(s, from+1))
	case value == wholeLine:
		return notScrubbed(s, from, lineEnd(s, from))
	}
	return from, valueEnd(s, from)
}

// valueBegin is where a value begins behind its separator, and the quote before it, if there is one.
func valueBegin(s string, at int) (from int, quote byte) {
	for ; at < len(s); at++ {
		switch s[at] {
		case '"', '\'':
			return at + 1, s[at]
		case ' ', '\t', '\\', ':', '=', '>':
		default:
			return at, 0
		}
	}
	return at, 0
}

// valueEnd is where a value without quotes ends, with the token if it is a scheme.
func valueEnd(s string, from int) int {
	to := from + run(s[from:], inValue)
	if isScheme(s[from:to]) {
		if _, end := tokenAfter(s, to); end > to {
			return end
		}
	}
	return to
}

const longestLook = 256 // bytes of a value by which it is told from a word, lest each of many names looks at all that follows

// likelyValue is a value without quotes that looks like a secret, or is a number; an error text would lose its words.
func likelyValue(s string, from int) (int, int) {
	to := from + run(s[from:min(from+longestLook, len(s))], inValue)
	switch {
	case isScheme(s[from:to]):
		return tokenAfter(s, to)
	case !looksSecret(s[from:to]) && strings.Trim(s[from:to], "0123456789") != "":
		return 0, 0
	}
	return from, to + run(s[to:], inValue)
}

// lineEnd is where the line ends that the value at from stands in, also in a string of JSON; what an equals sign stands
// before is a quote within the value.
func lineEnd(s string, from int) int {
	open := false
	for i := from; i < len(s); i++ {
		quote := i
		switch {
		case s[i] == '\n' || s[i] == '\r':
			return i
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == 'n' || s[i+1] == 'r'):
			return i
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
		case s[i] != '"' && s[i] != '\'':
			continue
		}
		if !open && (quote == from || s[quote-1] != '=') {
			return quote
		}
		open = !open
	}
	return len(s)
}

// bracketEnd is where the bracket or brace before from is closed, or where the text ends.
func bracketEnd(s string, from int) int {
	escaped := strings.HasPrefix(s[from:], `\"`) // JSON within JSON
	depth, open := 1, false
	for i := from; i < len(s); i++ {
		switch b := s[i]; {
		case b == '"':
			open = !open
		case b == '\\' && open && !escaped:
			i++
		case open:
		case b == '[' || b == '{':
			depth++
		case b == ']' || b == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(s)
}

// quoted is what stands between quotes. Where the first one is escaped, as in JSON within JSON, the last one is too.
func quoted(s string, from int, quote byte) (int, int) {
	if from >= 2 && s[from-2] == '\\' {
		if n := strings.Index(s[from:], s[from-2:from]); n >= 0 {
			return notScrubbed(s, from, from+n)
		}
		return notScrubbed(s, from, len(s))
	}
	for i := from; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case quote:
			return notScrubbed(s, from, i)
		}
	}
	return notScrubbed(s, from, len(s))
}

func notScrubbed(s string, from, to int) (int, int) {
	if s[from:to] == scrubbedSecret {
		return 0, 0
	}
	return from, to
}

// looksSecret tells a token from a word.
func looksSecret(s string) bool {
	if len(s) < shortestSecret {
		return false
	}
	return strings.ContainsAny(s, "0123456789=+/_.~") || strings.ContainsAny(s[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ToUpper(s) != s
}
