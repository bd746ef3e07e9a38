package lab

import (
	"time"

	"github.com/settlemq/settle/idemstore"
)

// What the workers at a provider without keys are told. They can ask it what became of a request.
var (
	asking    = rules{Unkeyed: true, AbsentAfter: settles}
	limited   = rules{Unkeyed: true, AbsentAfter: lingers, MaxAge: ageLimit}
	resending = rules{Unkeyed: true, AbsentAfter: settles, ResendUnkeyed: true}
)

const (
	settles  = 200 * time.Millisecond // how long the workers believe that a report may be invisible
	ageLimit = time.Second
	lingers  = 800 * time.Millisecond // the same where the worker is to be gone before its message comes again
)

// unknown: nobody on our side knows whether the effect happened, and the provider keeps no keys.
var unknown = story{
	name: "unknown",
	steps: []step{
		{"dies", inTurn(providerIgnoresKeys, publish, dies("A", asking)),
			claims{status("started"), attempts(1), externalID(none), reports(1)}},
		{"asks", runs("B", asking),
			claims{status("finished"), attempts(2), requests(1), reports(1), pointsAt(1), waiting(0)}},
		{"lost", withinAgeLimit(inTurn(providerCannotTell, publish, learnsNothing("A", limited))),
			claims{status("unknown"), attempts(1), externalID(none), unsure("yes"), reports(1)}},
		{"stops", runs("B", limited),
			claims{status("needs_review"), cause(idemstore.CauseAge), externalID(none), requests(1), reports(1), waiting(0)}},
		{"person", showToPerson,
			claims{status("needs_review"), requests(1), reports(1)}},
	},
	breaks: []step{
		{"lost", inTurn(providerHidesReports, publish, learnsNothing("A", resending)),
			claims{status("unknown"), externalID(none), reports(1)}},
		{"again", runs("B", resending),
			claims{status("finished"), requests(2), reports(2), pointsAt(2)}},
	},
	tasks: 2,
}
