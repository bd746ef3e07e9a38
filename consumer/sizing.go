package consumer

import (
	"sync"
	"time"
)

// sizing says how many local jobs of a kind share a transaction: as many as get done in sizeTime. So a transaction of quick jobs
// serves many, and slow ones have one each. As many transactions are open at a time as it takes to use all slots.
type sizing struct {
	slots int

	mu    sync.Mutex
	most  int           // jobs that go together without getting into each other's way
	quick time.Duration // that one of them takes
}

const (
	sizeTime    = 25 * time.Millisecond
	sizeMost    = 64
	sizeLanes   = 2
	sizeLate    = 4 * sizeTime // no other job waits for a transaction that takes longer
	sizeTooLong = time.Second  // such a group is given up
)

func newSizing(slots int) *sizing { return &sizing{slots: slots, most: sizeMost} }

// bounds are those of a group.
func (s *sizing) bounds() (jobs, transactions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs = s.most
	if s.quick > 0 {
		jobs = max(1, min(jobs, int(sizeTime/s.quick)))
	}
	return jobs, max(sizeLanes, (s.slots+jobs-1)/jobs)
}

// learn takes in how long the jobs of a transaction took. Slowness counts at once and is forgotten slowly; so is trouble.
func (s *sizing) learn(jobs int, took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	each := took / time.Duration(jobs)
	s.quick = max(each, s.quick-(s.quick-each)/8)
	switch {
	case ok:
		s.most = min(sizeMost, s.most+max(1, s.most/8))
	case jobs > 1:
		s.most = max(1, jobs/2)
	}
}
