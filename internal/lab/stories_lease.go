package lab

import "time"

const (
	shortLease = time.Second // of the worker that comes late; the shortest that the engine takes
	longLease  = time.Hour   // of the worker that comes in time, however long a reader pauses
)

// lease (L6): the lease is over, and nobody else has claimed the task.
var lease = story{
	name:   "lease",
	byHand: true,
	steps: []step{
		{"claims", inTurn(claimsTask("A", shortLease), sends("A", withKey)),
			claims{status("started"), attempts(1), externalID(none), reports(1)}},
		{"expires", leaseRunsOut,
			claims{status("started"), attempts(1), leaseIs(expired)}},
		{"strict", completes("A", strictly),
			claims{completion(refused), row(unchanged), status("started"), attempts(1), externalID(none)}},
		{"lenient", completes("A", leniently),
			claims{completion(saved), status("finished"), attempts(1), pointsAt(1), reports(1)}},
	},
	breaks: []step{
		{"claims", inTurn(claimsTask("A", shortLease), sends("A", withoutKey)),
			claims{status("started"), attempts(1), reports(1)}},
		{"expires", leaseRunsOut,
			claims{status("started"), attempts(1), leaseIs(expired)}},
		{"strict", completes("A", strictly),
			claims{completion(refused), row(unchanged), externalID(none)}},
		{"again", inTurn(claimsTask("B", longLease), armsTask("B"), sends("B", withoutKey), completes("B", strictly)),
			claims{completion(saved), status("finished"), attempts(2), pointsAt(2), reports(2)}},
	},
}

// leaseStale (L7): the lease is over, and somebody else has claimed the task.
var leaseStale = story{
	name:   "lease-stale",
	byHand: true,
	steps: []step{
		{"claims", inTurn(claimsTask("A", shortLease), sends("A", withKey)),
			claims{status("started"), attempts(1), externalID(none), reports(1)}},
		{"expires", leaseRunsOut,
			claims{status("started"), attempts(1), leaseIs(expired)}},
		{"taken", inTurn(claimsTask("B", longLease), asks("B")),
			claims{status("started"), attempts(2), leaseIs(live), externalID(none), requests(1), reports(1)}},
		{"strict", completes("A", strictly),
			claims{completion(refused), row(unchanged), status("started"), attempts(2)}},
		{"lenient", completes("A", leniently),
			claims{completion(refused), row(unchanged), status("started"), attempts(2)}},
		{"owner", completes("B", strictly),
			claims{completion(saved), status("finished"), attempts(2), pointsAt(1), reports(1)}},
	},
	breaks: []step{
		{"leaves", inTurn(claimsTask("A", shortLease), requestIsOnItsWay("A")),
			claims{status("started"), attempts(1), requests(1), reports(0)}},
		{"expires", leaseRunsOut,
			claims{status("started"), attempts(1), leaseIs(expired)}},
		{"taken", inTurn(claimsTask("B", longLease), armsTask("B"), sends("B", withoutKey), completes("B", strictly)),
			claims{completion(saved), status("finished"), attempts(2), pointsAt(1), reports(1)}},
		{"arrives", requestArrives("A"),
			claims{status("finished"), attempts(2), pointsAt(1), reports(2)}},
		{"refused", inTurn(completes("A", strictly), completes("A", leniently)),
			claims{completion(refused), row(unchanged), attempts(2), pointsAt(1), reports(2)}},
	},
}
