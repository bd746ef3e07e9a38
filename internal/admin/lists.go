package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/settlemq/settle/idemstore"
)

const (
	pageLength  = 50
	straysShown = 100
)

// list is a page of a list.
type list struct {
	Name   string `json:"list"`
	Kind   string `json:"kind,omitempty"`   // only of this kind
	Within string `json:"within,omitempty"` // only what came in this time: 1h, 24h, 168h

	Tasks    []row       `json:"tasks,omitempty"`
	Refusals []refusal   `json:"refusals,omitempty"`
	Strays   []stray     `json:"strays,omitempty"`
	Outbox   []outboxRow `json:"outbox,omitempty"`
	Counts   []pile      `json:"counts"` // of the whole list, by kind or by reason
	Next     int64       `json:"next,omitempty"`
	Cut      bool        `json:"cut,omitempty"`     // more are open than were looked at
	NoNATS   bool        `json:"no_nats,omitempty"` // strays were not looked for

	title listName
	kinds []string
	after int64
}

// pile is how many there are of something, and how old the oldest is.
type pile struct {
	Name          string  `json:"name"`
	Count         int     `json:"count"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

// Oldest is the age of the oldest.
func (p pile) Oldest() time.Duration { return time.Duration(p.OldestSeconds * float64(time.Second)) }

// outboxRow is a row of the outbox. The names are those of settle outbox --json.
type outboxRow struct {
	ID        int64     `json:"id"`
	Task      int64     `json:"task,omitempty"`
	Subject   string    `json:"subject"`
	Key       string    `json:"key,omitempty"`
	Size      int       `json:"size"`
	CreatedAt time.Time `json:"created_at"`
	Failures  int       `json:"failures"`
	NextAt    time.Time `json:"next_at"`
	LastError string    `json:"last_error,omitempty"`
}

func (s *screen) getList(r *http.Request) (view, error) {
	q := r.URL.Query()
	l := list{Name: r.PathValue("name"), Kind: q.Get("kind"), Within: q.Get("within"), Counts: []pile{}}
	at := slices.IndexFunc(listNames, func(n listName) bool { return n.Name == l.Name })
	if at < 0 {
		return view{}, notFound(noSuchPage)
	}
	newer, err := within(l.Within)
	if err != nil {
		return view{}, err
	}
	if l.after, err = number(q.Get("after")); err != nil {
		return view{}, err
	}
	l.title = listNames[at]
	for _, k := range s.Kinds {
		l.kinds = append(l.kinds, k.Name)
	}
	err = s.fill(r.Context(), &l, newer)
	return view{page: "list", title: l.title.Title, data: l}, err
}

// within reads the length of time that a list is about; empty is any.
func within(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, badRequest(noSuchSpan)
	}
	return d, nil
}

func (s *screen) fill(ctx context.Context, l *list, newer time.Duration) (err error) {
	page := idemstore.Listing{Kind: l.Kind, Newer: newer, After: l.after, Limit: pageLength}
	switch l.Name {
	case "review":
		page.Status = idemstore.NeedsReview
	case "unknown":
		page.Status = idemstore.Unknown
	case "failed":
		page.Status = idemstore.Failed
	case "long":
		page.Status, page.Older = idemstore.Started, s.LongAfter
	case "refusals":
		return s.fillRefusals(ctx, l, newer)
	case "strays":
		return s.fillStrays(ctx, l)
	case "outbox":
		return s.fillOutbox(ctx, l)
	}
	found, err := s.Store.Page(ctx, page)
	if err != nil {
		return err
	}
	for _, t := range found.Tasks {
		l.Tasks = append(l.Tasks, rowOf(t))
	}
	l.Next, l.Cut = found.Next, found.Cut
	l.Counts, err = s.counts(ctx, page.Status)
	return err
}

// counts are how many tasks have a status, by kind. They are those that are not over or failed: nobody counts the others.
func (s *screen) counts(ctx context.Context, status idemstore.Status) (out []pile, err error) {
	piles := map[string]idemstore.Pile{}
	if status == idemstore.Failed {
		piles, err = s.Store.FailedOf(ctx)
		return sorted(piles), err
	}
	c, err := s.Store.Census(ctx)
	if err != nil {
		return nil, err
	}
	for kind, open := range c.Open {
		piles[kind] = pileOf(open, status)
	}
	return sorted(piles), nil
}

func pileOf(o idemstore.OpenTasksOf, status idemstore.Status) idemstore.Pile {
	switch status {
	case idemstore.Started:
		return o.Started
	case idemstore.Unknown:
		return o.Unknown
	case idemstore.NeedsReview:
		return o.Parked
	case idemstore.Finished, idemstore.Failed:
	}
	return idemstore.Pile{}
}

// sorted are the piles that have something in them, by name.
func sorted(piles map[string]idemstore.Pile) []pile {
	out := []pile{}
	for name, p := range piles {
		if p.Count > 0 {
			out = append(out, pile{name, p.Count, p.Oldest.Seconds()})
		}
	}
	slices.SortFunc(out, func(a, b pile) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s *screen) fillStrays(ctx context.Context, l *list) error {
	if s.Strays == nil {
		l.NoNATS = true
		return nil
	}
	found, err := s.Strays(ctx, straysShown)
	for _, u := range found {
		one := stray{Subject: u.Subject, Count: u.Count}
		if len(u.Messages) > 0 {
			one.Oldest = &u.Messages[0].StoredAt
		}
		l.Strays = append(l.Strays, one)
	}
	return err
}

// stray is a subject whose messages no consumer is given.
type stray struct {
	Subject string     `json:"subject"`
	Count   uint64     `json:"count"`
	Oldest  *time.Time `json:"oldest_at,omitempty"`
}

func (s *screen) fillOutbox(ctx context.Context, l *list) error {
	rows, err := s.Store.ListOutbox(ctx, l.after, pageLength)
	if err != nil {
		return err
	}
	for _, r := range rows {
		l.Outbox = append(l.Outbox, outboxRow{r.ID, r.TaskID, r.Subject, r.Key, r.Size, r.CreatedAt, r.Failures, r.NextAt, r.LastError})
	}
	if len(rows) == pageLength {
		l.Next = rows[pageLength-1].ID
	}
	c, err := s.Store.Census(ctx)
	if err != nil {
		return err
	}
	l.Counts = sorted(map[string]idemstore.Pile{texts["outbox_jobs"]: c.OutboxJobs, texts["outbox_events"]: c.OutboxEvents})
	return nil
}

// Title and Note say what the list is.
func (l list) Title() string { return l.title.Title }

// Note says what is in the list.
func (l list) Note() string { return l.title.Note }

// Kinds are those to choose from.
func (l list) Kinds() []string { return l.kinds }

// Filtered says whether the list can be narrowed to a kind and a time.
func (l list) Filtered() bool { return l.Name != "strays" && l.Name != "outbox" }

// Spans are the times to choose from.
func (l list) Spans() []string { return []string{"1h", "24h", "168h"} }

// Empty reports that the page shows nothing.
func (l list) Empty() bool {
	return len(l.Tasks)+len(l.Refusals)+len(l.Strays)+len(l.Outbox) == 0 && !l.NoNATS
}

// Later says that this is not the first page.
func (l list) Later() bool { return l.after != 0 }

// NextLink and FirstLink lead to pages of the same list.
func (l list) NextLink() string { return l.page(l.Next) }

// FirstLink leads to the first page.
func (l list) FirstLink() string { return l.page(0) }

func (l list) page(after int64) string {
	q := url.Values{}
	for name, value := range map[string]string{"kind": l.Kind, "within": l.Within} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if after != 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	return "/lists/" + l.Name + "?" + q.Encode()
}
