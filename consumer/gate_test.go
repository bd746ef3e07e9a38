package consumer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// openGate has all the time in the world.
func openGate() *gate {
	far := time.Now().Add(time.Hour)
	return newGate(far, far, nil)
}

func TestGateLimits(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name                         string
		lease, deadline, keyAge, now int // seconds; keyAge 0: none
		want                         error
	}{
		{"all hold", 30, 20, 0, 19, nil},
		{"all three hold", 30, 20, 10, 9, nil},
		{"the lease ends at its very end", 10, 20, 0, 10, ErrLost},
		{"the deadline at its very end", 30, 20, 0, 20, ErrDeadline},
		{"the key's age at its very end", 30, 20, 5, 5, ErrDeadline},
		{"a lost lease goes before a passed deadline", 10, 10, 0, 15, ErrLost},
		{"a lost lease goes before an old key", 10, 30, 5, 15, ErrLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(at(c.lease), at(c.deadline), nil)
			if c.keyAge != 0 {
				g.limitKeyAge(at(c.keyAge))
			}
			g.now = func() time.Time { return at(c.now) }
			if err := g.pass(); !errors.Is(err, c.want) {
				t.Fatalf("pass: %v, want %v", err, c.want)
			}
			if g.refused() != (c.want != nil) || g.sent() != (c.want == nil) || !errors.Is(g.cause(), c.want) {
				t.Errorf("refused %v, sent %v, cause %v", g.refused(), g.sent(), g.cause())
			}
			if unsent := g.shut(ErrDraining); unsent != (c.want != nil) {
				t.Errorf("shut: unsent %v", unsent)
			}
		})
	}
}

func TestGateLetsSeveralRequestsThrough(t *testing.T) {
	g := openGate()
	for range 3 {
		if err := g.pass(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGateShut(t *testing.T) {
	t.Run("unsent", func(t *testing.T) {
		g := openGate()
		if !g.shut(ErrDraining) || !g.shut(ErrLost) {
			t.Error("shut of an unused gate says that something was sent")
		}
		if g.refused() {
			t.Error("refused before anybody asked")
		}
		if err := g.pass(); !errors.Is(err, ErrDraining) {
			t.Errorf("pass: %v, want the first cause", err)
		}
		if !g.refused() || g.sent() {
			t.Errorf("refused %v, sent %v", g.refused(), g.sent())
		}
	})
	t.Run("after a request", func(t *testing.T) {
		g := openGate()
		if err := g.pass(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if g.shut(ErrDraining) {
				t.Error("shut says that nothing was sent")
			}
		}
		if err := g.pass(); !errors.Is(err, ErrDraining) {
			t.Errorf("pass: %v", err)
		}
	})
}

// A worker that was frozen past its lease wakes with a context that looks alive; its clock says otherwise, and no
// later renewal gives the task back.
func TestGateStaysShutAfterALateRenewal(t *testing.T) {
	now := time.Now()
	g := newGate(now.Add(time.Second), now.Add(time.Hour), nil)
	g.now = func() time.Time { return now.Add(3 * time.Second) }
	if err := g.pass(); !errors.Is(err, ErrLost) {
		t.Fatalf("pass: %v", err)
	}
	g.renew(now.Add(time.Minute))
	if err := g.pass(); !errors.Is(err, ErrLost) {
		t.Errorf("pass after a late renewal: %v", err)
	}
}

func TestGateFollowsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Now().Add(3*time.Second), time.Now().Add(20*time.Second), nil)
		var renewals sync.WaitGroup
		renewals.Go(func() {
			for range 8 {
				<-time.After(2 * time.Second)
				g.renew(time.Now().Add(3 * time.Second))
			}
			g.renew(time.Now()) // reported late: changes nothing
		})
		for second := range 19 {
			if err := g.pass(); err != nil {
				t.Fatalf("pass in second %d: %v", second, err)
			}
			<-time.After(time.Second)
			synctest.Wait()
		}
		renewals.Wait()
		if err := g.pass(); !errors.Is(err, ErrLost) {
			t.Errorf("pass after the last renewal has run out: %v", err)
		}
	})
}

func TestGateJudgement(t *testing.T) {
	type end struct {
		connected bool
		status    int
	}
	for _, c := range []struct {
		name     string
		bare     int   // passes that nobody reports on
		ends     []end // requests that ended
		statuses []int
		want     judgement
	}{
		{name: "nothing passed", want: sentNothing},
		{name: "no connection", ends: []end{{false, 0}}, want: appliedNothing},
		{name: "no connection, twice", ends: []end{{false, 0}, {false, 0}}, want: appliedNothing},
		{name: "401, 405, 429", ends: []end{{true, 401}, {true, 405}, {true, 429}}, want: appliedNothing},
		{name: "connection, no answer", ends: []end{{true, 0}}, want: maybeApplied},
		{name: "200", ends: []end{{true, 200}}, want: maybeApplied},
		{name: "an answer over no known connection", ends: []end{{false, 200}}, want: maybeApplied},
		{name: "403 is not on the list", ends: []end{{true, 403}}, want: maybeApplied},
		{name: "one of two", ends: []end{{false, 0}, {true, 500}}, want: maybeApplied},
		{name: "a bare pass", bare: 1, want: maybeApplied},
		{name: "a bare pass beside a harmless one", bare: 1, ends: []end{{true, 429}}, want: maybeApplied},
		{name: "the profile's own list", ends: []end{{true, 503}}, statuses: []int{503}, want: appliedNothing},
		{name: "an empty list is none", ends: []end{{true, 429}}, statuses: []int{}, want: maybeApplied},
		{name: "which replaces the default", ends: []end{{true, 429}}, statuses: []int{503}, want: maybeApplied},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(time.Now().Add(time.Hour), time.Now().Add(time.Hour), c.statuses)
			for range c.bare + len(c.ends) {
				if err := g.pass(); err != nil {
					t.Fatal(err)
				}
			}
			for i, e := range c.ends {
				if got := g.judgement(); got != maybeApplied {
					t.Errorf("judgement with %d requests under way: %v", len(c.ends)-i, got)
				}
				g.ended(e.connected, e.status)
			}
			if got := g.judgement(); got != c.want {
				t.Errorf("judgement %v, want %v", got, c.want)
			}
		})
	}
}

// Shut and pass meet in many orders; whichever is first, both sides must agree on whether something left.
func TestGateShutAgainstPass(t *testing.T) {
	for range 2000 {
		g := openGate()
		var start, done sync.WaitGroup
		start.Add(1)
		var passed [4]error
		for i := range passed {
			done.Go(func() {
				start.Wait()
				passed[i] = g.pass()
				if passed[i] == nil {
					g.ended(true, http.StatusTooManyRequests)
				}
			})
		}
		var unsent bool
		var early judgement
		done.Go(func() {
			start.Wait()
			early = g.judgement()
			unsent = g.shut(ErrLost)
		})
		start.Done()
		done.Wait()

		let := 0
		for _, err := range passed {
			if err == nil {
				let++
			} else if !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
		}
		want := appliedNothing
		if let == 0 {
			want = sentNothing
		}
		if unsent != (let == 0) || g.sent() == unsent || g.refused() != (let < len(passed)) || g.judgement() != want {
			t.Fatalf("%d passed, but unsent %v, sent %v, refused %v, judgement %v (early %v)",
				let, unsent, g.sent(), g.refused(), g.judgement(), early)
		}
	}
}

func TestGateInContext(t *testing.T) {
	if g := gateFrom(t.Context()); g != nil {
		t.Errorf("gate of a plain context: %v", g)
	}
	g := openGate()
	ctx, cancel := context.WithTimeout(withGate(t.Context(), g), time.Hour)
	defer cancel()
	if gateFrom(ctx) != g {
		t.Error("the gate is lost in a derived context")
	}
}

// The gate is shut between a request's look at the limits and its pass: the request must not leave.
func TestGateShutWhilePassing(t *testing.T) {
	g := openGate()
	g.now = func() time.Time {
		g.shut(ErrLost)
		return time.Now()
	}
	if err := g.pass(); !errors.Is(err, ErrLost) || g.sent() {
		t.Errorf("pass: %v, sent %v", err, g.sent())
	}
}
