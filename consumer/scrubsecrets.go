package consumer

import "strings"

// secretNames end the names of members, parameters and headers whose values are secret, without hyphens and underscores.
var secretNames = []string{"password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "accesskey", "privatekey",
	"authorization", "credential", "credentials", "cookie", "jwt", "cvc", "cvv"}

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
	word := s[i:end]
	switch {
	case isScheme(word):
		return tokenAfter(s, end)
	case isSecretName(word):
		return valueAfter(s, end)
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

func isSecretName(word string) bool {
	for _, name := range secretNames {
		if endsWithName(word, name) {
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
	to = from + run(s[from:], inToken)
	if from == at || !looksSecret(s[from:to]) {
		return 0, 0
	}
	return from, to
}

// valueAfter is the value behind a name: name=value, name: value, "name":"value". What is neither quoted nor behind an equals
// sign has to look like a secret, or an error text would lose its words.
func valueAfter(s string, at int) (from, to int) {
	const quotes = "\"'\\ "
	at += len(s[at:]) - len(strings.TrimLeft(s[at:], quotes))
	if at == len(s) || s[at] != '=' && s[at] != ':' {
		return 0, 0
	}
	sure := s[at] == '='
	at++
	from = at + len(s[at:]) - len(strings.TrimLeft(s[at:], quotes))
	if i := strings.LastIndexAny(s[at:from], `"'`); i >= 0 {
		quote := s[at+i]
		from = at + i + 1
		return quoted(s, from, quote)
	}
	to = from + run(s[from:], inValue)
	switch {
	case isScheme(s[from:to]):
		return tokenAfter(s, to)
	case !sure && !looksSecret(s[from:to]) && strings.Trim(s[from:to], "0123456789") != "":
		return 0, 0
	}
	return from, to
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
