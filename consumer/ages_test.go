package consumer

import (
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// asking is an attempt that was claimed a minute ago and sent its look-up ten seconds later.
func asking(p Provider, age idemstore.Age) *attempt {
	claimed := now().Add(-time.Minute)
	d := &definition{provider: p.withDefaults(), policy: Policy{Deadline: time.Second}}
	return &attempt{delivery: &delivery{kind: &kind{definition: d}}, age: age, task: idemstore.Task{Provider: "here"},
		claimed: claimed, known: claimed.Add(time.Second), asked: claimed.Add(10 * time.Second)}
}

// From the absent-after time on, to the nanosecond, and counted when the look-up left: an answer that took until now
// may be older than what the provider has shown since.
func TestSettledCountsFromTheLookUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		age  idemstore.Age
		want bool
	}{
		{"never sent, as far as anybody knows", idemstore.Age{}, false},
		{"a moment too early", idemstore.Age{LastSent: 6*time.Second - 1, HasLastSent: true}, false},
		{"on the dot", idemstore.Age{LastSent: 6 * time.Second, HasLastSent: true}, true},
	} {
		if got := asking(Provider{AbsentAfter: 15 * time.Second}, c.age).askFacts(Absent).settled; got != c.want {
			t.Errorf("%s: settled %v", c.name, got)
		}
	}
}

// A key grows old until the moment of the decision: the look-up's time counts, and so does the claim's.
func TestYoungCountsUntilNow(t *testing.T) {
	t.Parallel()
	here := Provider{Identity: "here", KeyLifetime: time.Hour} // usable for an hour less one and ten seconds
	const rest = time.Hour - 11*time.Second - time.Minute
	for _, c := range []struct {
		name string
		p    Provider
		age  idemstore.Age
		want bool
	}{
		{"young", here, idemstore.Age{FirstSent: rest - time.Minute, HasFirstSent: true}, true},
		{"grown old since the claim", here, idemstore.Age{FirstSent: rest, HasFirstSent: true}, false},
		{"the first send's time is not known", here, idemstore.Age{}, false},
		{"another provider now", Provider{Identity: "elsewhere"}, idemstore.Age{HasFirstSent: true}, false},
		{"another account now", Provider{Identity: "here, account 7"}, idemstore.Age{HasFirstSent: true}, false},
		{"keeps no keys", Provider{Identity: "here", Unkeyed: true}, idemstore.Age{HasFirstSent: true}, false},
		{"lifetime no longer than its margin", Provider{Identity: "here", KeyLifetime: 11 * time.Second}, idemstore.Age{HasFirstSent: true}, false},
	} {
		if got := asking(c.p, c.age).young(); got != c.want {
			t.Errorf("%s: young %v", c.name, got)
		}
	}
}
