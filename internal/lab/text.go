package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Language is a language that labs speak.
type Language string

// The languages.
const (
	English Language = "en"
	Russian Language = "ru"
)

// Languages are all of them.
func Languages() []Language { return []Language{English, Russian} }

// LanguageOf finds the language for messages in an environment, as POSIX says: the first of LC_ALL, LC_MESSAGES and LANG
// that is not empty. What is not Russian is English.
func LanguageOf(variable func(string) string) Language {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		value := variable(name)
		if value == "" {
			continue
		}
		if i := strings.IndexAny(value, "._@"); i >= 0 {
			value = value[:i]
		}
		if strings.EqualFold(value, string(Russian)) {
			return Russian
		}
		return English
	}
	return English
}

// words are the texts of one language by their ids.
type words map[string]string

func (l Language) words() words {
	if l == Russian {
		return russian
	}
	return english
}

// say is the text with an id, with its placeholders filled: fill is name, value, name, value. A text that is missing, or
// a placeholder that nobody fills, is a mistake in a story and is shown as such; a test looks for it.
func (w words) say(id string, fill ...string) string {
	text, ok := w[id]
	if !ok {
		return "{" + id + "}"
	}
	var pairs []string
	for i := 0; i+1 < len(fill); i += 2 {
		pairs = append(pairs, "{"+fill[i]+"}", fill[i+1])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// value is a word that stands for a value, in this language; what is no such word stays as it is.
func (w words) value(v string) string {
	if text, ok := w["value."+v]; ok {
		return text
	}
	return v
}

// duration is a round one, in the largest unit that gives a whole number.
func (w words) duration(d time.Duration) string {
	unit, n := "unit.ms", d.Milliseconds()
	switch {
	case d%time.Hour == 0:
		unit, n = "unit.h", int64(d/time.Hour)
	case d%time.Second == 0:
		unit, n = "unit.s", int64(d/time.Second)
	}
	return w.say(unit, "n", strconv.FormatInt(n, 10))
}

// facts are what the texts of a story may mention.
func (p *play) facts() (fill []string) {
	for name, d := range map[string]time.Duration{"lease": workerLease, "short": shortLease, "patience": patience, "holding": holding,
		"settles": settles, "age": ageLimit, "soon": tooSoon.ProofRetention, "enough": inTime.ProofRetention} {
		fill = append(fill, name, p.words.duration(d))
	}
	return append(fill, "task", fmt.Sprint(p.task), "next", fmt.Sprint(p.next), "key", p.key(), "kind", p.kind)
}
