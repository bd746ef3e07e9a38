package consumer_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The Go of the README is compiled: each block stands word for word in one of the examples.
func TestREADMEIsTheExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := ""
	for _, name := range []string{"example_kind_test.go", "example_localkind_test.go", "example_new_test.go", "example_publish_test.go", "example_stepkind_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples += string(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) == 0 {
		t.Error("the README has no Go")
	}
	for _, block := range blocks {
		if !strings.Contains(examples, "\n"+block[1]) {
			t.Errorf("no example has this block of the README:\n%s", block[1])
		}
	}
}
