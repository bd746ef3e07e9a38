package consumertest

import "github.com/settlemq/settle/consumer"

// commits is what Commit queues for a job that did not happen, and for the same job had it happened.
type commits struct{ not, happened string }

// watchCommit notes what Commit does about refusals, and about events that are out of date where there can be some.
func (s *stage[J, R]) watchCommit(commit func(*consumer.Writes, consumer.Final[J, R]) error, ordered bool) func(*consumer.Writes, consumer.Final[J, R]) error {
	note := func(where *[]commits, not, happened consumer.Final[J, R]) {
		var a, b consumer.Writes
		if commit(&a, not) == nil && commit(&b, happened) == nil {
			s.mu.Lock()
			*where = append(*where, commits{a.String(), b.String()})
			s.mu.Unlock()
		}
	}
	return func(w *consumer.Writes, f consumer.Final[J, R]) error {
		switch other := f; {
		case f.Refused != "":
			other.Refused = ""
			note(&s.refusals, f, other)
		case ordered && f.Happened():
			other.Source = consumer.Skipped
			note(&s.skips, other, f)
		}
		return commit(w, f)
	}
}
