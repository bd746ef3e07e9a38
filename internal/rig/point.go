package rig

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Edge is the side of a span that a point lies on.
type Edge string

// The edges. Code before a span's start has run, code inside it has not; code inside it has run at its end, code
// after it has not.
const (
	Start Edge = "start"
	End   Edge = "end"
)

// Action is what a process does to itself at a point. It always says first that it is there.
type Action string

// The actions.
const (
	Note  Action = ""      // go on
	Block Action = "block" // hold the goroutine until it is released; the others run on
	Stop  Action = "stop"  // SIGSTOP: the whole process stands still, until somebody sends SIGCONT
	Kill  Action = "kill"  // SIGKILL
)

// Point is a place in a running process. The process acts there once.
type Point struct {
	Span   string // name of the span, or of a place that calls Points.At
	Edge   Edge   // At counts as Start
	Nth    int    // act on the n-th passage that fits, counted from 1; 0 means 1
	Action Action
	// Attribute and Value restrict the point to spans that carry this attribute. At a start only those
	// attributes count that the span was started with. Empty: any span of the name.
	Attribute, Value string
}

// Points acts at points. It is an OpenTelemetry span processor: register it with the tracer provider of the code
// under test, with every span sampled. Processors are called by the goroutine that starts or ends the span, and that
// goroutine is held until the action is over.
type Points struct {
	places []*place
	report func(index int) // tells the parent process; nil in a test's own process
}

var _ sdktrace.SpanProcessor = (*Points)(nil)

// place is a point with its state.
type place struct {
	Point
	mu       sync.Mutex
	passages int
	reached  chan struct{}
	released chan struct{}
	release  sync.Once
}

// NewPoints makes the points of the test's own process, which can only note and block. In a worker process the
// points come from WorkerOptions, by ChildPoints.
func NewPoints(points ...Point) (*Points, error) {
	for _, p := range points {
		if p.Action == Kill || p.Action == Stop {
			return nil, fmt.Errorf("point %s %s: action %s would hit the test itself", p.Span, p.Edge, p.Action)
		}
	}
	return newPoints(points, nil), nil
}

func newPoints(points []Point, report func(int)) *Points {
	ps := &Points{report: report}
	for _, p := range points {
		ps.places = append(ps.places,
			&place{Point: p, reached: make(chan struct{}), released: make(chan struct{})})
	}
	return ps
}

// Reached is closed when p is reached. It is nil, which blocks for ever, if p is none of the points.
func (ps *Points) Reached(p Point) <-chan struct{} {
	for _, pl := range ps.places {
		if pl.Point == p {
			return pl.reached
		}
	}
	return nil
}

// Release lets the goroutine go on that p blocks, now or later.
func (ps *Points) Release(p Point) {
	for _, pl := range ps.places {
		if pl.Point == p {
			pl.open()
		}
	}
}

// At is a point without a span: it acts like the start of a span of that name, without attributes.
func (ps *Points) At(name string) { ps.pass(name, Start, nil) }

// OnStart acts on the points at the start of a span.
func (ps *Points) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	ps.pass(s.Name(), Start, s.Attributes())
}

// OnEnd acts on the points at the end of a span.
func (ps *Points) OnEnd(s sdktrace.ReadOnlySpan) { ps.pass(s.Name(), End, s.Attributes()) }

// Shutdown releases whatever is blocked.
func (ps *Points) Shutdown(context.Context) error {
	for _, pl := range ps.places {
		pl.open()
	}
	return nil
}

// ForceFlush does nothing: points keep no spans.
func (ps *Points) ForceFlush(context.Context) error { return nil }

func (ps *Points) pass(name string, edge Edge, attributes []attribute.KeyValue) {
	for i, pl := range ps.places {
		if pl.Span != name || pl.Edge != edge || !pl.fits(attributes) || !pl.due() {
			continue
		}
		if ps.report != nil {
			ps.report(i)
		}
		close(pl.reached)
		pl.act()
	}
}

func (pl *place) fits(attributes []attribute.KeyValue) bool {
	if pl.Attribute == "" {
		return true
	}
	for _, a := range attributes {
		if string(a.Key) == pl.Attribute && a.Value.String() == pl.Value {
			return true
		}
	}
	return false
}

// due counts a passage and reports whether it is the one to act on.
func (pl *place) due() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.passages++
	return pl.passages == max(pl.Nth, 1)
}

func (pl *place) act() {
	switch pl.Action {
	case Note:
	case Block:
		<-pl.released
	case Stop:
		stopSelf()
	case Kill:
		killSelf()
	}
}

func (pl *place) open() { pl.release.Do(func() { close(pl.released) }) }
