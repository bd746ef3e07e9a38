package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// after is a moment some milliseconds past noon.
func after(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func TestShareInFlight(t *testing.T) {
	t.Parallel()
	s := newShare(0, 5)
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("nothing granted", s.take(9, noon), 0)
	s.granted(idemstore.Grant{Flights: 3}, noon, after(1000))
	check("all of it", s.take(9, noon), 3)
	check("no more", s.take(1, noon), 0)
	s.done(1, 0)
	check("one is back", s.take(9, noon), 1)
	if less := s.granted(idemstore.Grant{Flights: 1}, after(10), after(2000)); !less {
		t.Error("nobody is told that it became less")
	}
	if _, flights := s.holds(after(10)); flights != 3 {
		t.Errorf("it holds %d, and three are in the air", flights)
	}
	s.done(2, 2)
	check("as many in the air as granted", s.take(1, after(10)), 0)
	s.done(1, 0)
	check("one again", s.take(9, after(10)), 1)
	s.done(1, 0)
	check("the grant is over", s.take(9, after(2000)), 0)
	if _, flights := s.holds(after(2000)); flights != 0 {
		t.Errorf("it still holds %d", flights)
	}
	if _, ok := s.slot(after(2000), true, time.Hour); ok || s.usable(after(2000)) {
		t.Error("a call passes after the end of the grant")
	}
}

func TestShareRate(t *testing.T) {
	t.Parallel()
	s := newShare(7.5, 0)
	if s.parts != 7 {
		t.Errorf("%d parts", s.parts)
	}
	s.granted(idemstore.Grant{Rate: 7}, noon, after(10_000))
	if wait, ok := s.wait(noon); ok || wait < 133*time.Millisecond || wait > 134*time.Millisecond {
		t.Errorf("the first message in %v (%v)", wait, ok)
	}
	if n := s.take(9, after(400)); n != 3 {
		t.Errorf("%d messages in 400 ms at 7.5 per second", n)
	}
	if n := s.take(99, after(9000)); n != 7 {
		t.Errorf("%d messages after a long rest, want those of one second", n)
	}
	for i := range 3 { // one right away, and then one in 133 ms
		if wait, ok := s.slot(after(9000), true, time.Hour); !ok || wait.Round(time.Millisecond) != (time.Duration(i)*time.Second*10/75).Round(time.Millisecond) {
			t.Errorf("request %d in %v (%v)", i, wait, ok)
		}
	}
	if _, ok := s.slot(after(9000), true, 300*time.Millisecond); ok {
		t.Error("it waits longer than it may")
	}
	if _, ok := s.slot(after(9990), true, time.Hour); !ok {
		t.Error("its turn is before the end of the grant")
	}
	if _, ok := s.slot(after(9990), true, time.Hour); ok {
		t.Error("its turn is after the end of the grant")
	}
	s.granted(idemstore.Grant{Rate: 0}, after(9990), after(20_000))
	if _, ok := s.slot(after(15_000), true, time.Hour); ok {
		t.Error("a call passes at a rate of nothing")
	}
	s.tokens = 1 // saved up before
	if n := s.take(9, after(15_000)); n != 0 {
		t.Errorf("%d messages are taken that cannot be sent", n)
	}
	if _, ok := s.wait(after(15_000)); ok {
		t.Error("a message may be taken that cannot be sent")
	}
	s.granted(idemstore.Grant{Rate: 7}, after(15_000), after(20_000))
	if n := s.take(9, after(15_000)); n != 1 {
		t.Errorf("%d messages once there is a rate again, want what was saved up", n)
	}
}

// Calls that no message was counted for, such as a resend after a look-up, slow the intake down.
func TestShareOnCredit(t *testing.T) {
	t.Parallel()
	s := newShare(10, 0)
	s.granted(idemstore.Grant{Rate: 10}, noon, after(100_000))
	s.take(0, noon)
	for range 5 {
		s.slot(after(100), false, time.Hour)
	}
	for ms, want := range map[int]int{500: 0, 590: 0, 610: 1} {
		probe := newShare(10, 0)
		probe.grant, probe.until, probe.tokens, probe.filled = s.grant, s.until, s.tokens, s.filled
		if n := probe.take(1, after(ms)); n != want {
			t.Errorf("%d messages after %d ms, of which 5 calls were on credit", n, ms)
		}
	}
}

func TestSmallRateHasOnePart(t *testing.T) {
	t.Parallel()
	s := newShare(0.5, 0)
	s.granted(idemstore.Grant{Rate: 1}, noon, after(100_000))
	s.take(1, noon)
	if n := s.take(9, after(1900)); n != 0 || s.parts != 1 {
		t.Errorf("%d messages in 1.9 s, %d parts", n, s.parts)
	}
	if n := s.take(9, after(2000)); n != 1 {
		t.Errorf("%d messages in 2 s", n)
	}
}

func TestCapsAreChecked(t *testing.T) {
	t.Parallel()
	kinds := func(providers ...Provider) error {
		var defs []Definition
		for i, p := range providers {
			k := (&payProvider{}).kind()
			k.Name, k.Provider = fmt.Sprintf("case.n%d", i), p
			defs = append(defs, k)
		}
		_, err := defineAll(Config{}.withDefaults(), defs)
		return err
	}
	for name, c := range map[string]struct {
		providers []Provider
		fine      bool
	}{
		"one says it for both":     {[]Provider{{Identity: "p", MaxInFlight: 2}, {Identity: "p"}}, true},
		"both say the same":        {[]Provider{{Identity: "p", MaxPerSecond: 2}, {Identity: "p", MaxPerSecond: 2}}, true},
		"two providers":            {[]Provider{{Identity: "p", MaxInFlight: 2}, {Identity: "q", MaxInFlight: 3}}, true},
		"they differ":              {[]Provider{{Identity: "p", MaxInFlight: 2}, {Identity: "p", MaxInFlight: 3}}, false},
		"nobody to share with":     {[]Provider{{MaxInFlight: 2}}, false},
		"negative":                 {[]Provider{{Identity: "p", MaxInFlight: -1}}, false},
		"a negative rate":          {[]Provider{{Identity: "p", MaxPerSecond: -0.1}}, false},
		"a rate that is no number": {[]Provider{{Identity: "p", MaxPerSecond: zero() / zero()}}, false},
	} {
		if err := kinds(c.providers...); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func zero() float64 { return 0 }
