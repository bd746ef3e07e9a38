package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
)

// publishShown publishes a text to nobody, and returns what its terminal was given.
func publishShown(t *testing.T, text string, from io.Reader) (shown string) {
	t.Helper()
	if from == nil {
		from = strings.NewReader(text)
	}
	inputs := []input{{from: from}}
	var terminal, out bytes.Buffer
	report := newReport(&out, false)
	report.progress = newProgress(&terminal, sizeOf(inputs))
	p := publisher{only: "payment.charge", kinds: map[string]consumer.Definition{"payment.charge": consumer.Kind[struct{}, struct{}]{}},
		send: func(context.Context, consumer.Definition, job) answer {
			return answer{Outcome: consumer.PublishStored.String()}
		}}
	if err := p.run(t.Context(), inputs, report); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d stored, 0 duplicate, 0 unknown, 0 refused\n", strings.Count(text, "{")); out.String() != want {
		t.Errorf("the report is %q, want %q", out.String(), want)
	}
	return terminal.String()
}

// lastPicture is what is left on a line after all that was drawn on it.
func lastPicture(shown string) string {
	return strings.TrimSpace(shown[strings.LastIndex(shown, "\r")+1:])
}

func TestProgressOfAFileSaysHowLong(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("{}\n\n", 3000)
	name := filepath.Join(t.TempDir(), "jobs")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	shown := publishShown(t, text, f)
	if !regexp.MustCompile(`\d% \|.*\|\s+\[\d+s:\d+.*s\]`).MatchString(shown) {
		t.Errorf("no share and no time left in %q", shown)
	}
	if left := lastPicture(shown); left != "" {
		t.Errorf("%q is left on the terminal", left)
	}
}

func TestProgressOfAPipeCountsOnly(t *testing.T) {
	t.Parallel()
	shown := publishShown(t, strings.Repeat("{}\n", 3000), nil)
	if shown == "" || strings.Contains(shown, "%") {
		t.Errorf("shown %q, want neither nothing nor a share", shown)
	}
	if left := lastPicture(shown); left != "" {
		t.Errorf("%q is left on the terminal", left)
	}
}

func TestProgressCountsLinesAndIsDrawnSeldom(t *testing.T) {
	t.Parallel()
	var terminal bytes.Buffer
	p := newProgress(&terminal, -1)
	for range 100_000 {
		p.done(10)
	}
	p.clear()
	if n := strings.Count(terminal.String(), "lines"); n > 1000 {
		t.Errorf("drawn %d times", n)
	}
	if p.n != 100_000 {
		t.Errorf("%d lines", p.n)
	}
}

// Text and picture share one terminal: a refusal starts on an empty line.
func TestProgressMakesRoomForText(t *testing.T) {
	t.Parallel()
	var terminal bytes.Buffer
	report := newReport(&terminal, false)
	report.progress = newProgress(&terminal, 100)
	for _, a := range []answer{{Line: 1, Outcome: "stored", size: 10}, {Line: 2, Outcome: outcomeRefused, Reason: "malformed", size: 10}} {
		if err := report.add(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.end(); err == nil {
		t.Error("a refusal is no failure")
	}
	for _, s := range []string{"\rline 2: refused (malformed)\n", "\r1 stored, 0 duplicate, 0 unknown, 1 refused\n"} {
		if !strings.Contains(terminal.String(), s) {
			t.Errorf("no %q in %q", s, terminal.String())
		}
	}
}
