package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

const aDay = 24 * time.Hour

// refusal is a message that was not accepted.
type refusal struct {
	ID          int64      `json:"id"`
	At          time.Time  `json:"at"`
	Kind        string     `json:"kind,omitempty"`
	Key         string     `json:"key,omitempty"`
	Reason      string     `json:"reason"`
	Detail      string     `json:"detail,omitempty"`
	Subject     string     `json:"subject,omitempty"`
	Stream      string     `json:"stream,omitempty"`
	Sequence    uint64     `json:"sequence,omitempty"`
	Size        int        `json:"size"`
	Cut         bool       `json:"cut,omitempty"`  // only the beginning of the body was kept
	Task        int64      `json:"task,omitempty"` // that it conflicts with
	Republished *time.Time `json:"republished_at,omitempty"`
	By          string     `json:"republished_by,omitempty"`
	Why         string     `json:"republish_reason,omitempty"`

	Headers  []Fact `json:"-"`
	MayAgain bool   `json:"-"`              // it can be published again by whoever reads
	Body     string `json:"body,omitempty"` // without what is not to be shown; not in lists
	Other    string `json:"-"`              // the job of the task that it conflicts with
}

func (s *screen) refusalOf(r idemstore.KeptRefusal) refusal {
	out := refusal{
		ID: r.ID, At: r.At, Kind: r.Kind, Key: r.Key, Reason: string(r.Reason), Detail: consumer.Scrub(r.Detail), Subject: r.Subject,
		Stream: r.Origin.Stream, Sequence: r.Origin.Sequence, Size: r.Size, Cut: r.Cut, Task: r.TaskID, Body: s.shownOfRefusal(r),
	}
	if r.Republished != nil {
		out.Republished, out.By, out.Why = &r.Republished.At, r.Republished.Actor, r.Republished.Reason
	}
	for name, values := range r.Headers {
		for _, value := range values {
			out.Headers = append(out.Headers, Fact{name, consumer.Scrub(value)})
		}
	}
	slices.SortStableFunc(out.Headers, func(a, b Fact) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s *screen) getRefusal(r *http.Request) (view, error) {
	id, err := number(r.PathValue("id"))
	if err != nil {
		return view{}, err
	}
	found, err := s.Store.FindRefusal(r.Context(), id)
	out := s.refusalOf(found)
	if err == nil && found.TaskID != 0 {
		var t idemstore.Task
		t, err = s.Store.FindByID(r.Context(), found.TaskID)
		out.Other = s.shownOf(t.Kind, t.Payload)
	}
	out.MayAgain = s.mayAct(r) && found.Republished == nil && !found.Cut
	return view{page: "refusal", title: texts["refusal"] + " " + strconv.FormatInt(id, 10), data: out}, err
}

func (s *screen) fillRefusals(ctx context.Context, l *list, newer time.Duration) error {
	f := idemstore.RefusalFilter{Kind: l.Kind, Before: l.after, Limit: pageLength}
	if newer > 0 {
		f.Since = time.Now().Add(-newer)
	}
	found, err := s.Store.Refusals(ctx, f)
	if err != nil {
		return err
	}
	for _, r := range found {
		l.Refusals = append(l.Refusals, s.refusalOf(r))
	}
	if len(found) == pageLength {
		l.Next = found[pageLength-1].ID
	}
	piles, err := s.Store.RefusedBy(ctx, aDay)
	if err != nil {
		return err
	}
	byReason := map[string]idemstore.Pile{}
	for reason, p := range piles {
		byReason[string(reason)] = p
	}
	l.Counts = sorted(byReason)
	return nil
}

// Plain is the detail without the reason that it begins with.
func (r refusal) Plain() string { return strings.TrimPrefix(r.Detail, r.Reason+": ") }

// Facts are the details of a refusal.
func (r refusal) Facts() (facts []fact) {
	add := func(name, value, link string) {
		if value != "" {
			facts = append(facts, fact{texts[name], value, link})
		}
	}
	add("refused", when(r.At), "")
	add("reason", reasonIn(r.Reason), "")
	add("detail", r.Plain(), "")
	add("kind", r.Kind, "")
	add("key", r.Key, "")
	add("subject", r.Subject, "")
	if r.Sequence != 0 {
		add("message", r.Stream+" "+strconv.FormatUint(r.Sequence, 10), "")
	}
	add("size", strconv.Itoa(r.Size), "")
	if r.Task != 0 {
		add("conflicts_with", strconv.FormatInt(r.Task, 10), "/tasks/"+strconv.FormatInt(r.Task, 10))
	}
	add("again", whenOf(r.Republished, ""), "")
	add("by", r.By, "")
	add("cause", r.Why, "")
	return facts
}
