package demo

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// The kinds that the demo uses.
const (
	chargeKind  = "payment.charge"
	reportKind  = "report.create"
	contactKind = "contact.sync"
)

var allKinds = []string{chargeKind, reportKind, contactKind}

// repeat is a way in which a job comes more than once.
type repeat int

const (
	once        repeat = iota
	doubleClick        // two equal publishes at the same moment: the stream drops one
	webhook            // the same event sent twice, each with a message id and a member order of its own
	lostPubAck         // a publish whose answer was lost, made again without its message id
)

// job is one business key and what happens to it.
type job struct {
	kind, key string
	id        string // order id, task id, or contact and event: what the effects are searched by
	body      string
	repeat    repeat

	kill, timeout, freeze bool
}

// plan makes the jobs of a run: n charges and reports, and contact events among them. The same seed gives the same
// plan.
func plan(n int, seed uint64) []job {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a repeatable plan, no secret
	jobs := make([]job, n)
	for i := range jobs {
		if i%2 == 0 {
			jobs[i] = charge(r, 18452+i/2)
		} else {
			jobs[i] = report(r, 42+i/2)
		}
		jobs[i].repeat = aRepeat(r)
	}
	chooseVictims(r, jobs)
	jobs = weave(jobs, contactEvents(r, n/jobsPerContact))
	slices.SortStableFunc(jobs, func(a, b job) int { return a.act() - b.act() })
	return jobs
}

// aRepeat is once for half of the jobs.
func aRepeat(r *rand.Rand) repeat { return repeat(max(0, r.IntN(8)-4)) }

// weave puts one of others behind each two jobs.
func weave(jobs, others []job) (out []job) {
	for i, j := range jobs {
		out = append(out, j)
		if i%2 == 1 && i/2 < len(others) {
			out = append(out, others[i/2])
		}
	}
	return append(out, others[min(len(jobs)/2, len(others)):]...)
}

// act orders the misfortunes, so that one does not hide another: a worker that is killed cannot time out, and one
// that is frozen cannot be killed. An act begins when the one before it is over.
func (j job) act() int {
	switch {
	case j.freeze:
		return 2
	case j.timeout:
		return 1
	}
	return 0
}

func charge(r *rand.Rand, n int) job {
	id := fmt.Sprint(n)
	return job{kind: chargeKind, key: "order_" + id, id: id,
		body: fmt.Sprintf(`{"order_id":%q,"customer_id":"c_%d","amount":%d,"currency":"EUR"}`, id, 10+r.IntN(20), 100*(1+r.IntN(99)))}
}

func report(r *rand.Rand, n int) job {
	types := []string{"daily", "weekly", "monthly"}
	id := fmt.Sprint(n)
	return job{kind: reportKind, key: "report-task-" + id, id: id,
		body: fmt.Sprintf(`{"task_id":%s,"report_type":%q}`, id, types[r.IntN(len(types))])}
}

// chooseVictims picks different jobs for each misfortune: a kill and a timeout per kind, and a freeze.
func chooseVictims(r *rand.Rand, jobs []job) {
	var charges, reports []*job
	for _, i := range r.Perm(len(jobs)) {
		if jobs[i].kind == chargeKind {
			charges = append(charges, &jobs[i])
		} else {
			reports = append(reports, &jobs[i])
		}
	}
	charges[0].kill, charges[1].timeout, charges[2].freeze = true, true, true
	reports[0].kill, reports[1].timeout = true, true
}

// leastJobs is what a plan needs for its misfortunes.
const leastJobs = 6

// count is how many jobs satisfy f.
func count(jobs []job, f func(job) bool) (n int) {
	for _, j := range jobs {
		if f(j) {
			n++
		}
	}
	return n
}
