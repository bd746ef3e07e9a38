package settle_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	link     = regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
)

// A protection that names its test has one.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]+)\(t \*testing\.T\)`)
	eachFile(t, "_test.go", func(_ string, text string) {
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			there[m[1]] = true
		}
	})
	named := 0
	eachFile(t, ".md", func(name, text string) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if named++; !there[m[1]] {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	})
	if named < 60 {
		t.Errorf("only %d tests are named", named)
	}
}

// Links within the repository lead somewhere.
func TestTheLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	found := 0
	eachFile(t, ".md", func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			found++
			target := filepath.Join(filepath.Dir(name), filepath.FromSlash(m[1]))
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil || !info.IsDir() && err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if m[2] != "" && !strings.Contains(headings(string(content)), "\n"+m[2]+"\n") {
				t.Errorf("%s links to %s%s, and there is no such heading", name, m[1], m[2])
			}
		}
	})
	if found < 10 {
		t.Errorf("only %d links", found)
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noPart  = regexp.MustCompile(`[^a-z0-9 -]`)
)

// headings are the anchors of a page, one to a line, as GitHub makes them.
func headings(text string) string {
	out := "\n"
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out += "#" + strings.ReplaceAll(noPart.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") + "\n"
	}
	return out
}

// eachFile gives the files of the repository whose names end so, those of modules below it too.
func eachFile(t *testing.T, ending string, f func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ending):
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil {
			f(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
