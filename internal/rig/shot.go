package rig

import "sync"

// Shot is one armed fault. It is fired at most once.
type Shot struct {
	fired chan struct{}
	do    func()
}

// Fired is closed when the fault has happened: the connection is cut by then.
func (s *Shot) Fired() <-chan struct{} { return s.fired }

func (s *Shot) fire(cut func()) {
	if s.do != nil {
		s.do()
	}
	cut()
	close(s.fired)
}

// aimed is a shot with its target, a message of type T.
type aimed[T any] struct {
	*Shot
	hits   func(T) bool
	skip   int
	before bool // cut before the message, rather than before its answer
}

// magazine holds the armed shots of a proxy.
type magazine[T any] struct {
	mu    sync.Mutex
	armed []*aimed[T]
}

func (m *magazine[T]) arm(a *aimed[T], do func()) *Shot {
	a.Shot = &Shot{fired: make(chan struct{}), do: do}
	m.put(a)
	return a.Shot
}

func (m *magazine[T]) put(a *aimed[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = append(m.armed, a)
}

// take removes and returns the first shot that x sets off, or nil. A shot that still has to let hits pass counts
// this one and stays.
func (m *magazine[T]) take(x T) *aimed[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range m.armed {
		if !a.hits(x) {
			continue
		}
		if a.skip > 0 {
			a.skip--
			continue
		}
		m.armed = append(m.armed[:i:i], m.armed[i+1:]...)
		return a
	}
	return nil
}
