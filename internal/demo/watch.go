package demo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// watch shows the live line until everything has come to rest, or until it plainly will not. It wakes the frozen
// worker once another one has finished its task.
func (s *stage) watch(ctx context.Context, jobs []job, p *publisher) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(s.restLimit())
	for n := 0; ; n++ {
		resting, err := s.look(ctx, jobs, p, n)
		if err != nil {
			return err
		}
		if resting {
			return s.afterwards()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit:
			s.line("", true)
			s.workers.wake()
			return s.afterwards()
		case <-tick.C:
		}
	}
}

func (s *stage) restLimit() time.Duration {
	if s.options.Sabotage != "" {
		return sabotageRestLimit
	}
	return restLimit
}

// look reads the state once and shows it. At rest all jobs are final, what follows from them is published, nothing is in
// the stream, and the frozen worker has been woken.
func (s *stage) look(ctx context.Context, jobs []job, p *publisher, n int) (resting bool, err error) {
	kills, err := s.workers.state()
	if err != nil {
		return false, err
	}
	tasks, err := s.allTasks(ctx)
	if err != nil {
		return false, err
	}
	done, attempts, duplicates := 0, 0, 0
	for _, j := range jobs {
		t := tasks[j.key]
		attempts += t.Attempt
		duplicates += t.Duplicates
		if settled(t) {
			done++
			if j.freeze && t.Attempt > 1 && !s.woken {
				s.woken = true
				s.workers.wake()
			}
		}
	}
	unpublished, err := s.store.OutboxState(ctx) // before the stream is looked at: what is published is there
	if err != nil {
		return false, err
	}
	left, err := s.waiting(ctx)
	if err != nil {
		return false, err
	}
	sent := 0
	for _, kind := range allKinds {
		n, dropped := p.totals(kind)
		sent += n
		duplicates += dropped
	}
	s.line(fmt.Sprintf("published %d · done %d/%d · attempts %d · duplicates stopped %d · in the stream %d · workers killed %d",
		sent, done, len(jobs), attempts, duplicates, left, kills), n%20 == 0)
	return done == len(jobs) && unpublished.Rows == 0 && left == 0 && s.woken, nil
}

// line shows the progress: rewritten in place on a terminal, else now and then.
func (s *stage) line(text string, due bool) {
	switch {
	case s.options.Terminal:
		fmt.Fprintf(s.options.Progress, "\r\033[K%s", text)
	case due && text != "":
		fmt.Fprintln(s.options.Progress, strings.TrimSpace(text))
	}
}

// afterwards lets every worker finish what it would do late, the woken one included: a stale send comes now or never.
func (s *stage) afterwards() error {
	s.line("", false)
	s.workers.stop()
	_, err := s.workers.state()
	return err
}
