package consumer

import "testing"

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"jobs.a", "jobs.a", true},
		{"jobs.a", "jobs.a.b", false},
		{"jobs.a.b", "jobs.a", false},
		{"jobs.a", "jobs.A", false},
		{"jobs.*", "jobs.a", true},
		{"jobs.*", "jobs.a.b", false},
		{"jobs.*.b", "jobs.a.b", true},
		{"*.a", "jobs.a", true},
		{"jobs.>", "jobs.a.b.c", true},
		{"jobs.a.>", "jobs.a", false},
		{">", "jobs.a", true},
	} {
		if got := filterMatches(c.filter, c.subject); got != c.want {
			t.Errorf("%s, %s: %v", c.filter, c.subject, got)
		}
	}
}
