package lab

import (
	"time"

	"github.com/settlemq/settle/idemstore"
)

// What the workers of the labs on keys are told. None of them has a look-up: these labs are about the key alone.
var (
	// keyed sends the same key in every attempt.
	keyed = rules{NoLookup: true}
	// careless claims that the provider keeps keys, and sends none.
	careless = rules{NoLookup: true, NoKey: true}
	// truthful says that the provider keeps no keys.
	truthful = rules{NoLookup: true, NoKey: true, Unkeyed: true}
	// impatient is keyed, and waits for an answer for a short time only.
	impatient = rules{NoLookup: true, Patience: patience}
	// renamed makes a new key for each attempt.
	renamed = rules{NoLookup: true, KeyPerAttempt: true}
)

const (
	patience = 150 * time.Millisecond // of a client
	holding  = 900 * time.Millisecond // of an answer
)

// duplicate (L2): a crash between the effect and the save, and no key.
var duplicate = story{
	name: "duplicate",
	steps: []step{
		{"dies", inTurn(publish, dies("A", careless)),
			claims{status("started"), attempts(1), externalID(none), reports(1), waiting(1)}},
		{"again", takesUp("B", careless),
			claims{status("started"), attempts(2), externalID(none), reports(1)}},
		{"end", finishes("B"),
			claims{status("finished"), attempts(2), answers(201, 201), reports(2), pointsAt(2), waiting(0)}},
	},
	breaks: []step{
		{"dies", inTurn(publish, dies("A", truthful)),
			claims{status("started"), attempts(1), externalID(none), reports(1)}},
		{"parked", runs("B", truthful),
			claims{status("needs_review"), cause(idemstore.CauseNoLookup), attempts(2), requests(1), reports(1), waiting(0)}},
		{"newkey", inTurn(sameWorkAsNewTask, publish, runs("B", truthful)),
			claims{status("finished"), attempts(1), requests(2), reports(2)}},
	},
	breakTasks: 2,
}

// idempotent (L3): the same crash, with a stable key.
var idempotent = story{
	name: "idempotent",
	steps: []step{
		{"dies", inTurn(publish, dies("A", keyed)),
			claims{status("started"), attempts(1), externalID(none), reports(1), waiting(1)}},
		{"again", takesUp("B", keyed),
			claims{status("started"), attempts(2), externalID(none), reports(1)}},
		{"end", finishes("B"),
			claims{status("finished"), attempts(2), answers(201, 200), idsGiven(1), keysSent(1), reports(1), pointsAt(1), waiting(0)}},
	},
	breaks: []step{
		{"dies", inTurn(publish, dies("A", keyed)),
			claims{status("started"), attempts(1), reports(1)}},
		{"forgotten", inTurn(providerForgets, runs("B", keyed)),
			claims{status("finished"), attempts(2), answers(201, 201), keysSent(1), reports(2), pointsAt(2)}},
	},
}

// timeout (L4): the effect happens, and the answer comes too late.
var timeout = story{
	name: "timeout",
	steps: []step{
		{"givesup", inTurn(providerHoldsAnswer, publish, learnsNothing("A", impatient)),
			claims{status("unknown"), attempts(1), externalID(none), unsure("yes"), reports(1), waiting(1)}},
		{"again", runs("B", keyed),
			claims{status("finished"), attempts(2), answers(201, 200), idsGiven(1), keysSent(1), reports(1), pointsAt(1), waiting(0)}},
	},
	breaks: []step{
		{"givesup", inTurn(providerHoldsAnswer, publish, learnsNothing("A", rules{NoLookup: true, KeyPerAttempt: true, Patience: patience})),
			claims{status("unknown"), attempts(1), reports(1)}},
		{"again", runs("B", renamed),
			claims{status("finished"), attempts(2), answers(201, 201), keysSent(2), reports(2), pointsAt(2)}},
	},
}

// concurrent (L5): two requests with one key at the same moment, and then other content.
var concurrent = story{
	name:   "concurrent",
	byHand: true,
	steps: []step{
		{"together", together, claims{secondWaits("yes"), answers(201, 200), idsGiven(1), keysSent(1), requests(2), reports(1)}},
		{"other", sendsOtherContent("C"), claims{answers(201, 200, 409), requests(3), reports(1)}},
	},
	breaks: []step{
		{"together", inTurn(providerIgnoresKeys, together), claims{secondWaits("no"), answers(201, 201), idsGiven(2), keysSent(1), requests(2), reports(2)}},
	},
}
