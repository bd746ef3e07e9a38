package provider

import (
	"encoding/json"
	"sync"
)

// storedErrors are the errors that the fault "stored" put under keys, in memory. They are given again for ever.
type storedErrors struct {
	mu    sync.Mutex
	under map[string]answer
}

// place is where the error of a request is stored: keys of reports and keys of charges do not meet.
func (c Call) place() string { return c.Method + " " + c.Path + " " + c.Key }

// of returns what was stored under the key of a request.
func (e *storedErrors) of(call Call) (answer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.under[call.place()]
	return a, ok
}

// store keeps the answer under the request's key if the fault says so, and returns it as it goes back this time.
func (x *exchange) store(a answer) answer {
	if !x.fault.Stored || x.call.Key == "" {
		return a
	}
	x.errors.mu.Lock()
	defer x.errors.mu.Unlock()
	if x.errors.under == nil {
		x.errors.under = map[string]answer{}
	}
	x.errors.under[x.call.place()] = a.asReplay()
	return a
}

// asReplay is an answer as later requests get it: whole, and marked, in the body too if that has members.
func (a answer) asReplay() answer {
	again := answer{status: a.status, body: a.body, replayed: true}
	var members map[string]json.RawMessage
	if json.Unmarshal(a.body, &members) == nil && members != nil {
		members["replayed"] = json.RawMessage("true")
		again.body = jsonAnswer(a.status, members).body
	}
	return again
}
