package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestParseJobKeepsTheBodyByteForByte(t *testing.T) {
	const body = `{"amount": 12.50, "order_id":18452 ,"x":"\u00e9é"}`
	j, err := parseJob([]byte(` {"kind":"payment.charge","headers":{"a":"1","b":["2","3"]},"body":` + body + ` } `))
	if err != nil {
		t.Fatal(err)
	}
	if string(j.Body) != body {
		t.Errorf("body = %s, want %s", j.Body, body)
	}
	if j.Kind != "payment.charge" || j.Headers["a"][0] != "1" || len(j.Headers["b"]) != 2 {
		t.Errorf("job = %+v", j)
	}
}

func TestParseJobRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":              `order 1`,
		"not an object":         `[{"kind":"a","body":{}}]`,
		"cut off":               `{"kind":"a","body":{}`,
		"no kind":               `{"body":{}}`,
		"no body":               `{"kind":"a"}`,
		"kind of wrong type":    `{"kind":1,"body":{}}`,
		"headers of wrong type": `{"kind":"a","body":{},"headers":{"a":1}}`,
		"null header":           `{"kind":"a","body":{},"headers":{"a":null}}`,
		"two bodies":            `{"kind":"a","body":{},"body":{"b":1}}`,
		"other letter case":     `{"Kind":"a","body":{}}`,
		"unknown member":        `{"kind":"a","body":{},"header":{}}`,
		"something behind":      `{"kind":"a","body":{}} {}`,
		"broken body":           `{"kind":"a","body":{"x":}}`,
	} {
		if j, err := parseJob([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, j)
		}
	}
}

func collect(t *testing.T, text string) []line {
	t.Helper()
	var got []line
	for l, err := range lines(t.Context(), strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	return got
}

func TestLinesAreCountedAsAnEditorDoes(t *testing.T) {
	got := collect(t, "first\r\n\n  \nfourth\nlast without end")
	want := map[int]string{1: "first", 4: "fourth", 5: "last without end"}
	if len(got) != len(want) {
		t.Fatalf("lines = %v", got)
	}
	for _, l := range got {
		if want[l.number] != string(l.text) {
			t.Errorf("line %d = %q, want %q", l.number, l.text, want[l.number])
		}
	}
}

func TestALongLineIsReadOverAndNotKept(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	fits := strings.Repeat("y", 1<<20)
	got := collect(t, long+"\nnext\n"+fits)
	if len(got) != 3 || !got[0].tooLong || len(got[0].text) != 0 || string(got[1].text) != "next" || string(got[2].text) != fits {
		t.Fatalf("%d lines, first too long: %v with %d bytes", len(got), got[0].tooLong, len(got[0].text))
	}
}

func TestTheEndOfTheContextEndsAReadThatBlocks(t *testing.T) {
	r, w := io.Pipe() // nothing is ever written
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	var last error
	for _, err := range lines(ctx, r) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("last error = %v", last)
	}
}

func TestAReadErrorIsReported(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("one\n"), bufio.NewReader(brokenReader{}))
	var last error
	n := 0
	for _, err := range lines(t.Context(), broken) {
		if last = err; err == nil {
			n++
		}
	}
	if n != 1 || !errors.Is(last, errBroken) {
		t.Errorf("%d lines, last error %v", n, last)
	}
}

var errBroken = errors.New("disk on fire")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }
