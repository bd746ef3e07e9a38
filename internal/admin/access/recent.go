package access

import "container/list"

// recent is a map that forgets what was touched longest ago once it is full.
type recent[V any] struct {
	most  int
	byKey map[string]*list.Element
	order list.List // the latest in front; elements are *entry[V]
}

type entry[V any] struct {
	key   string
	value V
}

func newRecent[V any](most int) *recent[V] {
	return &recent[V]{most: most, byKey: map[string]*list.Element{}}
}

// touch is the value of a key, the zero value at first, to be changed in place.
func (r *recent[V]) touch(key string) *V {
	if e, ok := r.byKey[key]; ok {
		r.order.MoveToFront(e)
		return &e.Value.(*entry[V]).value //nolint:errcheck // nothing else is ever put in
	}
	if len(r.byKey) >= r.most {
		r.remove(r.order.Back().Value.(*entry[V]).key) //nolint:errcheck // see above
	}
	e := &entry[V]{key: key}
	r.byKey[key] = r.order.PushFront(e)
	return &e.value
}

// look is the value of a key, if it is there, and touches nothing.
func (r *recent[V]) look(key string) (*V, bool) {
	e, ok := r.byKey[key]
	if !ok {
		return nil, false
	}
	return &e.Value.(*entry[V]).value, true //nolint:errcheck // see above
}

func (r *recent[V]) remove(key string) {
	if e, ok := r.byKey[key]; ok {
		r.order.Remove(e)
		delete(r.byKey, key)
	}
}
