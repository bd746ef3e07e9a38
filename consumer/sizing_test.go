package consumer

import (
	"testing"
	"time"
)

func TestSizing(t *testing.T) {
	t.Parallel()
	want := func(s *sizing, what string, jobs, transactions int) {
		t.Helper()
		if j, n := s.bounds(); j != jobs || n != transactions {
			t.Errorf("%s: %d jobs, %d transactions; want %d, %d", what, j, n, jobs, transactions)
		}
	}
	s := newSizing(128)
	want(s, "nothing is known", 64, 2)
	s.learn(64, 64*100*time.Microsecond, true)
	want(s, "quick jobs", 64, 2)
	s.learn(50, 50*time.Millisecond, true)
	want(s, "a millisecond each", 25, 6)
	s.learn(1, 100*time.Millisecond, true)
	want(s, "slow ones", 1, 128)
	for range 40 {
		s.learn(1, 100*time.Microsecond, true)
	}
	if jobs, _ := s.bounds(); jobs < 32 {
		t.Errorf("slowness is not forgotten: %d jobs", jobs)
	}
	for range 40 {
		s.learn(64, 64*100*time.Microsecond, true)
	}
	want(s, "quick again", 64, 2)
	s.learn(64, time.Millisecond, false)
	want(s, "a group came to nothing", 32, 4)
	s.learn(32, time.Millisecond, false)
	s.learn(2, time.Millisecond, false)
	want(s, "two got into each other's way", 1, 128)
	s.learn(1, time.Millisecond, false)
	want(s, "a job that failed by itself says nothing", 1, 128)
	for range 100 {
		s.learn(1, 100*time.Microsecond, true)
	}
	want(s, "peace", 64, 2)
	if _, n := newSizing(1).bounds(); n != 2 {
		t.Errorf("one slot: %d transactions", n)
	}
}
