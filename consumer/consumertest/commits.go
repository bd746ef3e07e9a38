package consumertest

import "github.com/settlemq/settle/consumer"

// commits is what Commit queues for a refused job, and for the same job had it happened.
type commits struct{ refused, happened string }

// watchCommit notes what Commit does about refusals.
func (s *stage[J, R]) watchCommit(commit func(*consumer.Writes, consumer.Final[J, R]) error) func(*consumer.Writes, consumer.Final[J, R]) error {
	return func(w *consumer.Writes, f consumer.Final[J, R]) error {
		if f.Refused != "" {
			var refused, happened consumer.Writes
			other := f
			other.Refused = ""
			if commit(&refused, f) == nil && commit(&happened, other) == nil {
				s.mu.Lock()
				s.refusals = append(s.refusals, commits{refused.String(), happened.String()})
				s.mu.Unlock()
			}
		}
		return commit(w, f)
	}
}
