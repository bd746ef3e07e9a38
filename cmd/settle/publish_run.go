package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

const (
	publishWindow = 256 // answers that may wait for an earlier line's
	publishAtOnce = 64  // bodies in memory

	outcomeRefused = "refused"
)

// answer is what came of one line.
type answer struct {
	File     string `json:"file,omitempty"`
	Line     int    `json:"line"`
	Outcome  string `json:"outcome"`
	Sequence uint64 `json:"sequence,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`

	size int // of the line
}

// publisher publishes lines concurrently and answers in their order.
type publisher struct {
	kinds map[string]consumer.Definition
	only  string // the kind of all lines; empty where each names its own
	send  func(context.Context, consumer.Definition, job) answer
}

// run reads until the inputs or ctx end, waits for what is under way, and returns an error if any job was refused,
// is unknown, or was not read. Memory is bounded: at most publishAtOnce bodies and publishWindow answers.
func (p *publisher) run(ctx context.Context, inputs []input, out *report) error {
	pending := make(chan chan answer, publishWindow)
	read := make(chan error, 1)
	go func() {
		defer close(pending)
		read <- p.dispatch(ctx, inputs, pending)
	}()
	var printing error
	for a := range pending {
		if err := out.add(<-a); err != nil && printing == nil {
			printing = err
		}
	}
	return errors.Join(<-read, printing, out.end())
}

// dispatch starts one goroutine per line and passes on where its answer will appear, in the order of the lines.
// Each of them ends by itself, within publishDeadline.
func (p *publisher) dispatch(ctx context.Context, inputs []input, pending chan<- chan answer) error {
	atOnce := make(chan struct{}, publishAtOnce)
	for _, in := range inputs {
		for l, err := range lines(ctx, in.from) {
			if err != nil {
				return fmt.Errorf("read input: %w", err)
			}
			a := make(chan answer, 1)
			atOnce <- struct{}{}
			go func() {
				defer func() { <-atOnce }()
				answered := p.answer(ctx, l)
				answered.File, answered.Line, answered.size = in.name, l.number, l.size
				a <- answered
			}()
			pending <- a
		}
	}
	return nil
}

func (p *publisher) answer(ctx context.Context, l line) answer {
	if l.tooLong {
		return refusal(idemstore.TooLarge, fmt.Sprintf("line of more than %d bytes", maxLine))
	}
	j := job{Kind: p.only, Body: l.text}
	if p.only == "" {
		var err error
		if j, err = parseJob(l.text); err != nil {
			return refusal(idemstore.Malformed, err.Error())
		}
	}
	def := p.kinds[j.Kind]
	if def == nil {
		return unknownKind(j.Kind)
	}
	return p.send(ctx, def, j)
}

// report prints answers and counts them.
type report struct {
	w      io.Writer
	json   *json.Encoder // nil: plain text
	counts map[string]int

	progress *progress // nil: none is shown
}

func newReport(w io.Writer, asJSON bool) *report {
	r := &report{w: w, counts: map[string]int{}}
	if asJSON {
		r.json = json.NewEncoder(w)
	}
	return r
}

func (r *report) add(a answer) error {
	r.counts[a.Outcome]++
	defer r.progress.done(a.size)
	if r.json != nil {
		return r.json.Encode(a)
	}
	if a.Reason == "" {
		return nil
	}
	where := fmt.Sprintf("line %d", a.Line)
	if a.File != "" {
		where = printable(a.File) + ": " + where
	}
	text := fmt.Sprintf("%s: %s (%s)", where, a.Outcome, a.Reason)
	if a.Detail != "" {
		text += ": " + printable(a.Detail)
	}
	r.progress.clear()
	_, err := fmt.Fprintln(r.w, text)
	return err
}

// end prints the totals and makes refused and unknown jobs an error.
func (r *report) end() error {
	r.progress.end()
	stored, duplicate := r.counts[consumer.Stored.String()], r.counts[consumer.Duplicate.String()]
	unknown, refused := r.counts[consumer.NotKnown.String()], r.counts[outcomeRefused]
	if r.json == nil {
		if _, err := fmt.Fprintf(r.w, "%d stored, %d duplicate, %d unknown, %d refused\n", stored, duplicate, unknown, refused); err != nil {
			return err
		}
	}
	if unknown+refused > 0 {
		return fmt.Errorf("publish: %d jobs were refused and %d are unknown", refused, unknown)
	}
	return nil
}
