package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
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

	// With --wait, of a job that was published.
	Kind     string           `json:"kind,omitempty"`
	Key      string           `json:"key,omitempty"`
	Status   idemstore.Status `json:"status,omitempty"` // of the task, or pending
	Task     int64            `json:"task,omitempty"`
	Replayed *bool            `json:"replayed,omitempty"`
	Result   json.RawMessage  `json:"result,omitempty"`

	size int // of the line
}

// publisher publishes lines concurrently and answers in their order.
type publisher struct {
	kinds map[string]consumer.Definition
	only  string // the kind of all lines; empty where each names its own
	send  sendFunc
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
	if err := errors.Join(<-read, printing); err != nil {
		return errors.Join(&exitError{exitFailed, err}, out.end())
	}
	return out.end()
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
	waits  bool // for the ends of jobs
	ends   ends

	progress *progress // nil: none is shown
}

func newReport(w io.Writer, asJSON bool) *report {
	r := &report{w: w, counts: map[string]int{}, ends: ends{}}
	if asJSON {
		r.json = json.NewEncoder(w)
	}
	return r
}

func (r *report) add(a answer) error {
	r.counts[a.Outcome]++
	if a.Status != "" {
		r.ends[a.Status]++
	}
	defer r.progress.done(a.size)
	if r.json != nil {
		return r.json.Encode(a)
	}
	if a.Reason == "" && a.Status == "" {
		return nil
	}
	where := fmt.Sprintf("line %d", a.Line)
	if a.File != "" {
		where = story.Printable(a.File) + ": " + where
	}
	r.progress.clear()
	_, err := fmt.Fprintln(r.w, where+": "+a.text())
	return err
}

// text is what a person reads of a line that there is something to say about.
func (a answer) text() string {
	if a.Status != "" {
		return a.inWords()
	}
	text := fmt.Sprintf("%s (%s)", a.Outcome, a.Reason)
	if a.Detail != "" {
		text += ": " + story.Printable(a.Detail)
	}
	return text
}

// end prints the totals. Refused and unknown jobs are an error, and so are those that were waited for and are not done.
func (r *report) end() error {
	r.progress.end()
	unknown, refused := r.counts[consumer.PublishUnknown.String()], r.counts[outcomeRefused]
	if r.json == nil {
		if _, err := fmt.Fprintf(r.w, "%s, %d unknown, %d refused\n", r.published(), unknown, refused); err != nil {
			return err
		}
	}
	if unknown+refused > 0 {
		return &exitError{exitFailed, fmt.Errorf("publish: %d jobs were refused and %d are unknown%s", refused, unknown, r.ends.rest())}
	}
	return r.ends.err()
}

// published counts the jobs that are in the stream, or were.
func (r *report) published() string {
	if r.waits {
		return r.ends.String()
	}
	return fmt.Sprintf("%d stored, %d duplicate", r.counts[consumer.PublishStored.String()], r.counts[consumer.PublishDuplicate.String()])
}
