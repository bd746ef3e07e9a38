package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
)

const alertsShown = 10

// overview is what is going on.
type overview struct {
	Kinds  []kindCounts `json:"kinds"` // that have something that is not over, or failed
	Stream *stream      `json:"stream,omitempty"`
	Outbox []pile       `json:"outbox"`
	Served []service    `json:"served"`
	Hour   chart        `json:"hour"`
	Day    chart        `json:"day"`
	Alerts []alert      `json:"alerts"`
	Paused []control    `json:"paused"`
	Cut    bool         `json:"cut,omitempty"` // counts and ages are lower bounds
}

// kindCounts is where the tasks of one kind stand.
type kindCounts struct {
	Kind    string `json:"kind"`
	Pending pile   `json:"pending"`
	Held    int    `json:"held"` // of the pending ones, those that an attempt works at
	Unknown pile   `json:"unknown"`
	Review  pile   `json:"needs_review"`
	Failed  pile   `json:"failed"`
}

// alert is what people were called for. The names are those of settle alerts --json.
type alert struct {
	Cause   string     `json:"cause"`
	Kind    string     `json:"kind,omitempty"`
	Text    string     `json:"text"`
	Task    int64      `json:"task,omitempty"`
	Count   int        `json:"count"`
	FirstAt time.Time  `json:"first_at"`
	LastAt  time.Time  `json:"last_at"`
	ToldAt  *time.Time `json:"told_at"`
}

// Plain is the text without the command to look with, which is its end: whoever reads it here has links.
func (a alert) Plain() string {
	text, _, _ := strings.Cut(a.Text, " See settle ")
	return text
}

// alertLists are the lists that have what people were called for, by the first word of the cause.
var alertLists = map[string]string{"needs_review": "review", "conflict": "refusals", "stuck": "long", "unrouted": "strays"}

// List is where to look for it and the likes of it; nil if no list has them.
func (a alert) List() *listName {
	cause, _, _ := strings.Cut(a.Cause, " ")
	at := slices.IndexFunc(listNames, func(n listName) bool { return n.Name == alertLists[cause] })
	if at < 0 {
		return nil
	}
	return &listNames[at]
}

// control is how a kind is served, and who wanted that.
type control struct {
	Kind   string    `json:"kind"`
	Mode   string    `json:"mode"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Words say how it is served.
func (c control) Words() string { return modeWords[c.Mode] }

func (s *screen) getOverview(r *http.Request) (view, error) {
	o := overview{Kinds: []kindCounts{}, Alerts: []alert{}, Paused: []control{}}
	v := view{page: "overview", title: texts["overview"]}
	for _, add := range []func(context.Context, *overview) error{s.addCounts, s.addStream, s.addServed, s.addAlerts, s.addPaused} {
		if err := add(r.Context(), &o); err != nil {
			return v, err
		}
	}
	v.data = o
	return v, nil
}

func (s *screen) addCounts(ctx context.Context, o *overview) error {
	c, err := s.Store.Census(ctx)
	if err != nil {
		return err
	}
	failed, err := s.Store.FailedOf(ctx)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for kind := range c.Open {
		names[kind] = true
	}
	for kind := range failed {
		names[kind] = true
	}
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		open := c.Open[kind]
		o.Kinds = append(o.Kinds, kindCounts{kind, named("pending", open.Started), open.Held, named("unknown", open.Unknown),
			named("needs_review", open.Parked), named("failed", failed[kind])})
	}
	o.Outbox = sorted(map[string]idemstore.Pile{texts["outbox_jobs"]: c.OutboxJobs, texts["outbox_events"]: c.OutboxEvents})
	o.Cut = c.OpenCut || c.ParkedCut
	return nil
}

// stream is what waits in it.
type stream struct {
	Away        bool    `json:"away,omitempty"` // it does not answer, so nobody knows
	Undelivered []count `json:"undelivered"`
}

// count is how many jobs of a kind there are.
type count struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// streamLimit is how long the overview waits for the stream: without it the rest is still worth reading.
const streamLimit = 2 * time.Second

// addStream says what no worker was given yet. A stream that is away does not take the overview with it.
func (s *screen) addStream(ctx context.Context, o *overview) error {
	if s.Undelivered == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streamLimit)
	defer cancel()
	found, err := s.Undelivered(ctx)
	o.Stream = &stream{Away: err != nil, Undelivered: []count{}}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		if n := found[kind]; n > 0 {
			o.Stream.Undelivered = append(o.Stream.Undelivered, count{kind, int(n)}) //nolint:gosec // not so many
		}
	}
	return nil
}

// Quiet reports whether nothing waits, as far as can be seen.
func (o overview) Quiet() bool {
	return len(o.Kinds) == 0 && (o.Stream == nil || !o.Stream.Away && len(o.Stream.Undelivered) == 0)
}

func named(name string, p idemstore.Pile) pile { return pile{name, p.Count, p.Oldest.Seconds()} }

func (s *screen) addServed(ctx context.Context, o *overview) error {
	kinds, err := s.Store.ServedKinds(ctx)
	if err != nil {
		return err
	}
	hour, err := s.Store.Tallied(ctx, time.Minute, 60)
	if err != nil {
		return err
	}
	const quarter = 15 * time.Minute
	day, err := s.Store.Tallied(ctx, quarter, int(24*time.Hour/quarter))
	if err != nil {
		return err
	}
	o.Hour, o.Day = chartOf("hour", time.Minute, 60, hour), chartOf("day", quarter, int(24*time.Hour/quarter), day)
	o.Served = servicesOf(kinds, hour, day)
	return nil
}

// Charts are drawn one below the other.
func (o overview) Charts() []chart { return []chart{o.Hour, o.Day} }

func (s *screen) addAlerts(ctx context.Context, o *overview) error {
	found, err := s.Store.Alerts(ctx, alertsShown)
	for _, a := range found {
		o.Alerts = append(o.Alerts, alert{a.Cause, a.Kind, a.Text, a.TaskID, a.Count, a.FirstAt, a.LastAt, a.ToldAt})
	}
	return err
}

func (s *screen) addPaused(ctx context.Context, o *overview) error {
	found, err := s.Store.Controls(ctx)
	for _, c := range found {
		if c.Mode != idemstore.ModeRunning {
			o.Paused = append(o.Paused, control{c.Kind, string(c.Mode), c.Actor, c.Reason, c.At})
		}
	}
	return err
}
