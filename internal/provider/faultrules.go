package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// rules are the faults in force for all requests, in memory.
type rules struct {
	mu   sync.Mutex
	list []Fault // Count is what is left; a rule that is used up is gone
}

// SetFaults replaces all rules; an empty list leaves none. It refuses the whole list for one bad
// rule, naming it by its place, and changes nothing then.
func (s *Server) SetFaults(faults []Fault) error {
	for i, f := range faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("set faults: rule %d: %w", i+1, err)
		}
	}
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.rules.list = slices.Clone(faults)
	return nil
}

// Faults returns the rules still in force, with the counts that are left.
func (s *Server) Faults() []Fault {
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	return append([]Fault{}, s.rules.list...) // never nil: JSON shows [] and not null
}

// take adds to own, the fault of the request's header, what the rules have for the request, and counts the rules
// it used.
func (r *rules) take(own Fault, call Call) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make([]Fault, 0, len(r.list))
	for _, rule := range r.list {
		if !rule.meets(call) || rule.onAnswer() && own.onAnswer() {
			kept = append(kept, rule)
			continue
		}
		own = join(own, rule)
		if rule.Count == 1 {
			continue
		}
		rule.Count = max(0, rule.Count-1)
		kept = append(kept, rule)
	}
	r.list = kept
	return own
}

// join combines two faults of which at most one is about the answer.
func join(first, second Fault) Fault {
	joined := first
	if second.onAnswer() {
		joined = second
	}
	joined.IgnoreKeys = first.IgnoreKeys || second.IgnoreKeys
	joined.ForgetAfter = cmp.Or(first.ForgetAfter, second.ForgetAfter)
	joined.Hide = cmp.Or(first.Hide, second.Hide)
	joined.Decline = first.Decline || second.Decline
	joined.Pending, joined.PendingFails = first.Pending, first.PendingFails // the two belong together
	if first.Pending == 0 {
		joined.Pending, joined.PendingFails = second.Pending, second.PendingFails
	}
	return joined
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Faults())
}

// putFaults replaces the rules and answers with those now in force.
func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		refuseBad(w, err)
		return
	}
	faults, err := parseRules(body)
	if err != nil {
		refuseBad(w, err)
		return
	}
	if err := s.SetFaults(faults); err != nil {
		refuseBad(w, err)
		return
	}
	s.getFaults(w, r)
}

func parseRules(body []byte) ([]Fault, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || list == nil {
		return nil, errors.New(`the body must be a JSON list of rules such as [{"key": "K", "delay-after": "900ms"}]`)
	}
	faults := make([]Fault, len(list))
	for i, raw := range list {
		if err := faults[i].UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return faults, nil
}

func (s *Server) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	// An empty list has no bad rule.
	_ = s.SetFaults(nil)
	w.WriteHeader(http.StatusNoContent)
}
