package consumer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settlemq/settle/idemstore"
)

// flight is one group on its way: a test sees who is in it, and lets it land.
type flight struct {
	requests []string
	land     chan struct{}
}

// sky is a group of requests "key" or "key/what", each of whose flights shows up on off. It is for synctest bubbles.
type sky struct {
	*group[string, string]
	t   *testing.T
	off chan flight
}

func newSky(t *testing.T, limit, lanes int) *sky {
	s := &sky{t: t, off: make(chan flight)}
	s.group = &group[string, string]{
		key:    func(q string) string { key, _, _ := strings.Cut(q, "/"); return key },
		bounds: fixed(limit, lanes), ample: time.Minute, patience: time.Hour,
	}
	s.run = func(ctx context.Context, requests []string) []outcomeOf[string] {
		f := flight{requests, make(chan struct{})}
		s.off <- f
		out := make([]outcomeOf[string], len(requests))
		select {
		case <-f.land:
		case <-ctx.Done():
		}
		for i, q := range requests {
			out[i] = outcomeOf[string]{"answer to " + q, ctx.Err()}
		}
		return out
	}
	return s
}

// ask sends requests one after the other, and returns once each of them waits or flies. The returned function waits
// for their answers, which must be their own.
func (s *sky) ask(requests ...string) (answered func()) {
	var all sync.WaitGroup
	for _, q := range requests {
		all.Go(func() {
			if a, err := s.do(s.t.Context(), q); err != nil || a != "answer to "+q {
				s.t.Errorf("request %s: %q, %v", q, a, err)
			}
		})
		synctest.Wait()
	}
	return all.Wait
}

// next is the flight that takes off now. There must be one, with exactly these requests.
func (s *sky) next(requests ...string) flight {
	s.t.Helper()
	synctest.Wait()
	select {
	case f := <-s.off:
		if !slices.Equal(f.requests, requests) {
			s.t.Errorf("in flight %q, want %q", f.requests, requests)
		}
		return f
	default:
		s.t.Fatalf("nothing takes off, want %q", requests)
		return flight{}
	}
}

// calm fails the test if another group takes off.
func (s *sky) calm() {
	s.t.Helper()
	synctest.Wait()
	select {
	case f := <-s.off:
		s.t.Errorf("%q takes off", f.requests)
	default:
	}
}

// empty waits for the lanes to end, and makes sure that nothing is left.
func (s *sky) empty() {
	s.t.Helper()
	s.runners.Wait()
	if s.flying != 0 || s.lanes != 0 || len(s.waiting) != 0 {
		s.t.Errorf("%d lanes, %d of them counted, and %d requests are left", s.lanes, s.flying, len(s.waiting))
	}
}

// There is no timer: the clock of the bubble would have to move for one.
func TestALoneRequestRunsAtOnceAndAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newSky(t, 9, 2), time.Now()
		for _, q := range []string{"a", "b", "a"} { // each finds the lane of the one before it closed
			answered := s.ask(q)
			close(s.next(q).land)
			answered()
			s.empty()
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

// The lane of a slow group is not counted until it is back, so there is no more than one besides those that are slow.
func TestAnotherGroupJoinsASlowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, 9, 1)
		s.late = 10 * time.Millisecond
		var told []string
		s.slow = func(requests []string) { told = append(told, requests...) }
		first := s.ask("a")
		a := s.next("a")
		second := s.ask("c", "b")
		s.calm()
		<-time.After(s.late)
		bc := s.next("b", "c")
		third := s.ask("d")
		close(a.land) // its lane finds the other one counted, and ends
		first()
		s.calm()
		close(bc.land)
		second()
		d := s.next("d")
		close(d.land)
		third()
		s.empty()
		if !slices.Equal(told, []string{"a"}) {
			t.Errorf("slow were %q", told)
		}
	})
}

// Where all groups are slow there are as many as may be, and whichever is back first takes those that wait.
func TestSlowGroupsAreNoMoreThanMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, 9, 1)
		s.late, s.most = 10*time.Millisecond, 2
		first := s.ask("a")
		a := s.next("a")
		second := s.ask("b")
		<-time.After(s.late)
		b := s.next("b")
		third := s.ask("c")
		<-time.After(2 * s.late)
		s.calm()
		close(b.land)
		second()
		c := s.next("c")
		close(a.land)
		first()
		s.calm()
		close(c.land)
		third()
		fourth := s.ask("d") // no lane was forgotten
		close(s.next("d").land)
		fourth()
		s.empty()
	})
}

func TestRequestsGatherWhileAGroupIsInFlight(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int
		asked  []string
		groups [][]string
	}{
		"in the order of their keys": {9, []string{"c", "a", "b"}, [][]string{{"a", "b", "c"}}},
		"no key twice":               {9, []string{"b/1", "a/1", "b/2", "b/3", "a/2"}, [][]string{{"a/1", "b/1"}, {"a/2", "b/2"}, {"b/3"}}},
		"key of the group in flight": {9, []string{"first/2", "a"}, [][]string{{"a", "first/2"}}},
		"first come, first served":   {2, []string{"e", "d", "c", "b", "a"}, [][]string{{"d", "e"}, {"b", "c"}, {"a"}}},
		"both":                       {2, []string{"c/1", "c/2", "b", "a"}, [][]string{{"b", "c/1"}, {"a", "c/2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSky(t, c.limit, 1)
				answered := s.ask("first")
				inFlight := s.next("first")
				others := s.ask(c.asked...)
				s.calm()
				for _, want := range c.groups {
					close(inFlight.land)
					inFlight = s.next(want...)
				}
				close(inFlight.land)
				answered()
				others()
				s.empty()
			})
		})
	}
}

func TestNoMoreGroupsInFlightThanLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, 9, 2)
		answered := s.ask("a")
		a := s.next("a")
		others := s.ask("b", "c", "d")
		b := s.next("b")
		s.calm()
		close(b.land)
		second := s.next("c", "d")
		last := s.ask("e")
		s.calm()
		close(a.land)
		close(s.next("e").land)
		close(second.land)
		answered()
		others()
		last()
		s.empty()
	})
}

// Whoever leaves learns why, and nobody else notices: neither the group that it started nor the one that it waits for.
func TestAMemberThatLeavesDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky(t, 9, 1)
		why := errors.New("had enough")
		left := make(chan error, 2)
		ctx, leave := context.WithCancelCause(t.Context())
		leaving := func(q string) {
			go func() { _, err := s.do(ctx, q); left <- err }()
			synctest.Wait()
		}
		leaving("starts the lane")
		first := s.next("starts the lane")
		leaving("b")
		others := s.ask("a", "c")
		leave(why)
		for range 2 {
			if err := <-left; !errors.Is(err, why) {
				t.Errorf("left with %v, want %v", err, why)
			}
		}
		s.calm() // the first group still flies
		close(first.land)
		close(s.next("a", "b", "c").land) // what was asked for is done
		others()
		s.empty()
	})
}

// A group that is never answered ends by itself, and the next one has its own time.
func TestAGroupHasAmpleTimeAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newSky(t, 9, 1), time.Now()
		ended := make(chan error)
		go func() { _, err := s.do(t.Context(), "stuck"); ended <- err }()
		s.next("stuck")
		answered := s.ask("b")
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != s.ample {
			t.Errorf("%v after %v, want the deadline after %v", err, time.Since(began), s.ample)
		}
		close(s.next("b").land)
		answered()
		s.empty()
	})
}

var errBad = errors.New("bad member")

func TestTogether(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		requests string
		calls    []string
		failed   map[string]error
	}{
		"a group in one call":                       {"abc", []string{"abc"}, nil},
		"one bad member fails alone":                {"abxc", []string{"abxc", "a", "b", "x", "c"}, map[string]error{"x": errBad}},
		"all are bad":                               {"xx", []string{"xx", "x", "x"}, map[string]error{"x": errBad}},
		"a bad request by itself is not run again":  {"x", []string{"x"}, map[string]error{"x": errBad}},
		"a failure that is everybody's is met once": {"ab!", []string{"ab!"}, map[string]error{"a": away, "b": away, "!": away}},
		"a lone failure that would be everybody's":  {"!", []string{"!"}, map[string]error{"!": away}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			f := func(_ context.Context, requests ...string) ([]string, error) {
				all := strings.Join(requests, "")
				calls = append(calls, all)
				switch {
				case strings.Contains(all, "!"):
					return nil, away
				case strings.Contains(all, "x"):
					return nil, fmt.Errorf("run: %w", errBad)
				}
				return requests, nil
			}
			requests := strings.Split(c.requests, "")
			for i, o := range together(f, func(err error) bool { return errors.Is(err, away) })(t.Context(), requests) {
				q, want := requests[i], c.failed[requests[i]]
				if !errors.Is(o.err, want) || want == nil && o.answer != q || want != nil && o.answer != "" {
					t.Errorf("%s: %q, %v; want %v", q, o.answer, o.err, want)
				}
			}
			if !slices.Equal(calls, c.calls) {
				t.Errorf("calls %q, want %q", calls, c.calls)
			}
		})
	}
}

// A database that is away must not be asked once more for each of a group's members.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no connection":           {&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"no time left":            {context.DeadlineExceeded, true},
		"it refused":              {&pgconn.PgError{Code: "23505"}, false},
		"no answer to the COMMIT": {idemstore.ErrCommitUnanswered, false},
	} {
		if got := nobodyAnswers(fmt.Errorf("claim: %w", c.err)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
