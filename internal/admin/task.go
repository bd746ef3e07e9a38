package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

const (
	asideShown    = 100 // records of a batch that were set aside
	refusalsShown = 20  // refused messages of one task
)

// task is everything about one task.
type task struct {
	row

	Message     string         `json:"message"` // the sentence that answers the customer
	LastAttempt time.Time      `json:"last_attempt_at"`
	ProviderKey string         `json:"provider_key,omitempty"`
	Provider    string         `json:"provider,omitempty"`
	EvidenceID  string         `json:"evidence_id,omitempty"`
	EventID     string         `json:"event_id,omitempty"`
	EventSource string         `json:"event_source,omitempty"`
	Stream      string         `json:"stream,omitempty"`
	Sequence    uint64         `json:"sequence,omitempty"`
	TraceID     string         `json:"trace_id,omitempty"`
	KindMode    string         `json:"kind_mode"`       // running, asking or paused
	Waits       []string       `json:"waits,omitempty"` // why it is not over, and when it goes on
	Progress    *progress      `json:"progress,omitempty"`
	Timeline    []story.Moment `json:"timeline"`
	Refusals    []refusal      `json:"refusals,omitempty"`

	// Without what is not to be shown.
	Job    string `json:"job,omitempty"`
	Result string `json:"result,omitempty"`
	Answer string `json:"answer,omitempty"`

	Next []next `json:"next,omitempty"` // what can be done, for whoever may act

	ExternalLink string `json:"external_link,omitempty"`
	TraceLink    string `json:"trace_link,omitempty"`

	traceURL string
	paused   string
	notSent  string
}

// NotSent says why nothing can be sent; empty if something can, or if it is not for whoever reads.
func (t task) NotSent() string { return t.notSent }

// progress is how far a batch has come that is done record by record.
type progress struct {
	Done     int     `json:"done"`
	Total    int     `json:"total"`
	SetAside int     `json:"set_aside"`
	Aside    []aside `json:"set_aside_records,omitempty"`
}

// aside is a record that was set aside.
type aside struct {
	Index  int    `json:"index"` // in the job, from 0
	Reason string `json:"reason"`
}

func (s *screen) getTask(r *http.Request) (view, error) {
	id, err := number(r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	t, err := s.task(r.Context(), id, s.mayAct(r))
	return view{page: "task", title: t.Kind + " " + story.Printable(t.Key), data: t}, err
}

// task reads a task with all that stands beside its row.
func (s *screen) task(ctx context.Context, id int64, mayAct bool) (task, error) {
	t, err := s.Store.FindByID(ctx, id)
	if err != nil {
		return task{}, err
	}
	events, err := s.Store.Events(ctx, id)
	if err != nil {
		return task{}, err
	}
	refused, err := s.Store.RefusalsOf(ctx, id, refusalsShown)
	if err != nil {
		return task{}, err
	}
	out := s.told(t, events, refused)
	if mayAct {
		out.Next, out.notSent = s.nextOf(t, refused), s.whyNotSent(ctx, t)
	}
	if out.Progress, err = s.progress(ctx, id); err != nil {
		return task{}, err
	}
	control, err := s.control(ctx, t.Kind)
	if err != nil {
		return task{}, err
	}
	out.KindMode = string(idemstore.ModeRunning)
	if control != nil {
		out.KindMode, out.paused = string(control.Mode), pausedWords(control)
	}
	out.Waits, err = s.waits(ctx, t, control)
	return out, err
}

// told puts together what row and history say.
func (s *screen) told(t idemstore.Task, events []idemstore.Event, refused []idemstore.KeptRefusal) task {
	k := s.kinds[t.Kind]
	out := task{
		row: rowOf(t), Message: answer(t, story.Skipped(t, events), k.Words), LastAttempt: story.LastAttempt(t, events),
		ProviderKey: t.ProviderKey, Provider: consumer.Scrub(t.Provider), EvidenceID: t.EvidenceID, EventID: t.Event.ID, EventSource: t.Event.Source,
		Stream: t.Origin.Stream, Sequence: t.Origin.Sequence, TraceID: story.TraceID(t.OriginTrace),
		Timeline: story.Timeline(t, events, refused), Job: s.shownOf(t.Kind, t.Payload), Result: s.shownOf(t.Kind, t.Result), Answer: s.shownOf(t.Kind, []byte(t.Answer)),
		ExternalLink: link(k.Link, idPlace, t.ExternalID), traceURL: s.TraceURL,
	}
	out.TraceLink = out.LinkTrace(out.TraceID)
	for _, r := range refused {
		out.Refusals = append(out.Refusals, s.refusalOf(r))
	}
	return out
}

func (s *screen) progress(ctx context.Context, id int64) (*progress, error) {
	p, err := s.Store.Progress(ctx, id)
	if err != nil || p.Done == 0 {
		return nil, err
	}
	out := &progress{Done: p.Done, Total: p.Total, SetAside: p.SetAside}
	if p.SetAside == 0 {
		return out, nil
	}
	records, err := s.Store.StepsSetAside(ctx, id, asideShown)
	for _, r := range records {
		out.Aside = append(out.Aside, aside{r.Index, consumer.Scrub(r.Reason)})
	}
	return out, err
}

// control is how workers serve a kind; nil where nobody ever said.
func (s *screen) control(ctx context.Context, kind string) (*idemstore.Control, error) {
	controls, err := s.Store.Controls(ctx, kind)
	if err != nil || len(controls) == 0 {
		return nil, err
	}
	return &controls[0], nil
}

// mode is how workers serve a kind.
func (s *screen) mode(ctx context.Context, kind string) (string, error) {
	c, err := s.control(ctx, kind)
	if err != nil || c == nil {
		return string(idemstore.ModeRunning), err
	}
	return string(c.Mode), nil
}

// PlainError says what the last error means; empty if there is none.
func (t task) PlainError() string { return plainError(t.ErrorClass, t.LastError) }

// Why is the cause for which a person is asked, in words, where the sentence does not give it.
func (t task) Why() string {
	why := story.Cause(idemstore.Cause(t.Cause))
	if strings.Contains(t.Message, why) {
		return ""
	}
	return why
}

// Over reports that the last error is behind it: it is done all the same.
func (t task) Over() bool { return t.Status == string(idemstore.Finished) }

// PausedWords says that the kind of a task that is not over is paused, where Waits does not; empty if it is not.
func (t task) PausedWords() string {
	if len(t.Waits) > 0 || idemstore.Status(t.Status).Final() {
		return ""
	}
	return t.paused
}

// LinkTrace leads to a trace; empty where no place for traces is known.
func (t task) LinkTrace(id string) string { return link(t.traceURL, tracePlace, id) }

// fact is a line of the details.
type fact struct{ Name, Value, Link string }

// Facts are the details, without those that there are not.
func (t task) Facts() (facts []fact) {
	add := func(name, value, link string) {
		if value != "" {
			facts = append(facts, fact{texts[name], value, link})
		}
	}
	add("job_id", strconv.FormatInt(t.Task, 10), "")
	add("kind", t.Kind, "")
	add("key", t.Key, "")
	add("request_id", t.ProviderKey, "")
	add("external", t.ExternalID, t.ExternalLink)
	if t.EvidenceID != t.ExternalID {
		add("other_external", t.EvidenceID, "")
	}
	add("attempts", strconv.Itoa(t.Attempts)+", "+strconv.Itoa(t.Failures)+" "+texts["no_outcome"], "")
	add("last_attempt", when(t.LastAttempt), "")
	add("duplicates", story.Grouped(t.Duplicates), "")
	add("progress", t.Progress.words(), "")
	add("created", when(t.CreatedAt), "")
	add("next_attempt", whenOf(t.NextAttemptAt, texts["not_before"]+" "), "")
	add("age_limit", whenOf(t.GiveUpAt, ""), "")
	add("finished", whenOf(t.FinishedAt, ""), "")
	add("archived_at", whenOf(t.ArchivedAt, ""), "")
	add("provider", t.Provider, "")
	add("message", strings.TrimSuffix(t.Stream+" "+strconv.FormatUint(t.Sequence, 10), " 0"), "")
	add("event_id", t.EventID, "")
	add("event_source", t.EventSource, "")
	add("trace_id", t.TraceID, t.TraceLink)
	return facts
}

func (p *progress) words() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(recordOf, story.Grouped(p.Done), story.Grouped(p.Total), story.Grouped(p.SetAside))
}

func whenOf(t *time.Time, before string) string {
	if t == nil {
		return ""
	}
	return before + when(*t)
}
