package lab

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var placeholder = regexp.MustCompile(`\{[a-z_0-9]+\}`)

// Both languages have the same texts, and each text the same placeholders, however often.
func TestLanguagesHaveTheSameTexts(t *testing.T) {
	t.Parallel()
	for id := range english {
		if _, ok := russian[id]; !ok {
			t.Errorf("%s is missing in Russian", id)
		}
	}
	for id, text := range russian {
		original, ok := english[id]
		if !ok {
			t.Errorf("%s is missing in English", id)
			continue
		}
		if got, want := placeholders(text), placeholders(original); !slices.Equal(got, want) {
			t.Errorf("%s: %q in Russian, %q in English", id, got, want)
		}
		if text == "" || original == "" || text != strings.TrimSpace(text) && id != "pause" {
			t.Errorf("%s: %q, %q", id, text, original)
		}
	}
}

func placeholders(text string) []string {
	return slices.Compact(slices.Sorted(slices.Values(placeholder.FindAllString(text, -1))))
}

// A text in the wrong language is easily overlooked.
func TestRussianIsRussian(t *testing.T) {
	t.Parallel()
	cyrillic := regexp.MustCompile(`\p{Cyrillic}`)
	for id, text := range russian {
		if id != "check.unsure" && !cyrillic.MatchString(text) {
			t.Errorf("%s is not translated: %s", id, text)
		}
		if cyrillic.MatchString(english[id]) {
			t.Errorf("%s has Cyrillic letters in English: %s", id, english[id])
		}
	}
}

// Every story has all its texts, and no text is left over from a step that is gone.
func TestStoriesHaveTheirTexts(t *testing.T) {
	t.Parallel()
	p := &play{stage: &stage{words: english}}
	facts := maps.Collect(func(yield func(string, string) bool) {
		for fill := p.facts(); len(fill) > 0 && yield("{"+fill[0]+"}", fill[1]); fill = fill[2:] {
		}
	})
	for _, s := range stories {
		needed := map[string]bool{}
		for _, id := range []string{"title", "about", "break.about", "question", "answer", "limit"} {
			needed[s.name+"."+id] = true
		}
		for _, x := range s.steps {
			needed[s.name+"."+x.id] = true
		}
		for _, x := range s.breaks {
			needed[s.name+".break."+x.id] = true
		}
		for id := range needed {
			for _, name := range placeholders(english[id]) {
				if _, ok := facts[name]; !ok {
					t.Errorf("%s mentions %s, which nobody knows", id, name)
				}
			}
			if english[id] == "" {
				t.Errorf("%s is missing", id)
			}
		}
		for id := range english {
			if strings.HasPrefix(id, s.name+".") && !needed[id] {
				t.Errorf("%s belongs to no step", id)
			}
		}
		if len(s.steps) == 0 || len(s.breaks) == 0 {
			t.Errorf("lab %s has no steps or no break", s.name)
		}
	}
}

func TestLanguageOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		variables map[string]string
		want      Language
	}{
		{nil, English},
		{map[string]string{"LANG": "ru_RU.UTF-8"}, Russian},
		{map[string]string{"LANG": "ru"}, Russian},
		{map[string]string{"LANG": "RU@quot"}, Russian},
		{map[string]string{"LANG": "run_UG"}, English},
		{map[string]string{"LANG": "C.UTF-8"}, English},
		{map[string]string{"LANG": "ru_RU.UTF-8", "LC_MESSAGES": "de_DE.UTF-8"}, English},
		{map[string]string{"LANG": "de_DE.UTF-8", "LC_MESSAGES": "ru_RU.UTF-8"}, Russian},
		{map[string]string{"LC_MESSAGES": "ru_RU.UTF-8", "LC_ALL": "C"}, English},
		{map[string]string{"LANG": "ru_RU.UTF-8", "LC_ALL": ""}, Russian},
	} {
		if got := LanguageOf(func(name string) string { return c.variables[name] }); got != c.want {
			t.Errorf("%v: %s, want %s", c.variables, got, c.want)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[string]string{english.duration(patience): "150 ms", russian.duration(workerLease): "2 с",
		english.duration(inTime.ProofRetention): "80 h"} {
		if d != want {
			t.Errorf("%s, want %s", d, want)
		}
	}
}
