package consumer

import "sync"

// crew runs functions on goroutines that it keeps while an engine works: a new one would have to grow its stack first,
// for each delivery and each handler call.
type crew struct {
	work    chan func()
	over    chan struct{} // closed by dismiss
	members sync.WaitGroup
}

func newCrew() *crew { return &crew{work: make(chan func()), over: make(chan struct{})} }

// do runs f at once, on a goroutine that has nothing to do or on a new one. It does not wait for f.
func (c *crew) do(f func()) {
	select {
	case c.work <- f:
	default:
		c.members.Go(func() { c.serve(f) })
	}
}

func (c *crew) serve(f func()) {
	for {
		f()
		select {
		case f = <-c.work:
		case <-c.over:
			return
		}
	}
}

// dismiss lets each goroutine end as soon as it has nothing to do.
func (c *crew) dismiss() { close(c.over) }

// do runs f on a goroutine of its own, while the engine works on one of its crew.
func (e *Engine) do(f func()) {
	if c := e.crew.Load(); c != nil {
		c.do(f)
		return
	}
	go f()
}
