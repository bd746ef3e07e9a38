package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// maxLine bounds a line: a largest body of 1 MiB and some room for kind and headers.
const maxLine = 1<<20 + 64<<10

// line is one line of input without its end. A line that is too long is read over, not kept.
type line struct {
	number  int
	text    []byte
	size    int // in the input, its end included
	tooLong bool
}

// lines yields the lines of r that are not blank, and at most one error as its last item. The end of ctx is such
// an error. A read that blocks for ever (a terminal) is abandoned then: its goroutine ends with the process.
func lines(ctx context.Context, r io.Reader) iter.Seq2[line, error] {
	type item struct {
		line line
		err  error
	}
	return func(yield func(line, error) bool) {
		items, stop := make(chan item), make(chan struct{})
		defer close(stop)
		go func() {
			defer close(items)
			buffered := bufio.NewReaderSize(r, 64<<10)
			for number := 1; ; number++ {
				l, err := readLine(buffered)
				l.number = number
				select {
				case items <- item{l, err}:
				case <-stop:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for {
			var it item
			select {
			case it = <-items:
			case <-ctx.Done():
				yield(line{}, fmt.Errorf("stopped before the end: %w", context.Cause(ctx)))
				return
			}
			if blank := !it.line.tooLong && len(bytes.TrimSpace(it.line.text)) == 0; !blank && !yield(it.line, nil) {
				return
			}
			if it.err != nil {
				if !errors.Is(it.err, io.EOF) {
					yield(line{}, it.err)
				}
				return
			}
		}
	}
}

// readLine reads one line, whose end may be missing at the end of the input; then the error is io.EOF.
func readLine(r *bufio.Reader) (line, error) {
	var l line
	for {
		part, err := r.ReadSlice('\n')
		l.size += len(part)
		if len(l.text)+len(part) > maxLine {
			l.text, l.tooLong = nil, true
		}
		if !l.tooLong {
			l.text = append(l.text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.text = bytes.TrimSuffix(bytes.TrimSuffix(l.text, []byte("\n")), []byte("\r"))
		return l, err
	}
}

// job is one job to publish. Body holds the exact bytes of the input.
type job struct {
	Kind    string
	Body    []byte
	Headers map[string][]string
}

// parseJob reads {"kind": …, "body": …, "headers": {…}}. Unlike encoding/json's own structs it tells apart
// members by letter case and refuses unknown and repeated ones, so that a slip is not published half understood.
func parseJob(text []byte) (job, error) {
	var j job
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return j, errors.New("the line is not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, _ := t.(string)
		if err != nil {
			return j, errors.New("the line is not valid JSON")
		}
		if seen[name] {
			return j, fmt.Errorf("member %.64q appears twice", name)
		}
		seen[name] = true
		if err := j.member(dec, name); err != nil {
			return j, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return j, errors.New("the line is not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return j, errors.New("something follows the JSON object")
	}
	err := j.complete()
	return j, err
}

func (j *job) member(dec *json.Decoder, name string) error {
	var err error
	switch name {
	case "kind":
		err = dec.Decode(&j.Kind)
	case "body":
		var body json.RawMessage
		err = dec.Decode(&body)
		j.Body = body
	case "headers":
		j.Headers, err = decodeHeaders(dec)
	default:
		return fmt.Errorf("unknown member %.64q; known are kind, body and headers", name)
	}
	if err != nil {
		return fmt.Errorf("member %q is not what it should be", name)
	}
	return nil
}

func (j *job) complete() error {
	if j.Kind == "" {
		return errors.New("member \"kind\" is missing")
	}
	if j.Body == nil {
		return errors.New("member \"body\" is missing")
	}
	return nil
}

// decodeHeaders takes a text or a list of texts for each header.
func decodeHeaders(dec *json.Decoder) (map[string][]string, error) {
	var raw map[string]json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, err
	}
	headers := map[string][]string{}
	for name, value := range raw {
		var one *string
		var many []string
		if json.Unmarshal(value, &one) == nil && one != nil {
			many = []string{*one}
		} else if json.Unmarshal(value, &many) != nil || many == nil {
			return nil, errors.New("neither a text nor a list of texts")
		}
		headers[name] = many
	}
	return headers, nil
}
