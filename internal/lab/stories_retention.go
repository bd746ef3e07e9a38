package lab

import "time"

// What the workers of the lab on retention are told about the age at which key rows go.
var (
	forEver = rules{NoLookup: true}
	tooSoon = rules{NoLookup: true, ProofRetention: time.Hour}
	inTime  = rules{NoLookup: true, ProofRetention: 80 * time.Hour}
)

// retention: the row that stops a repeat must live longer than anything that can bring the job back.
var retention = story{
	name: "retention",
	steps: []step{
		{"refused", refusesToStart("A", tooSoon), claims{exitCode(2), noTask(), requests(0)}},
		{"done", inTurn(publish, runs("A", forEver)),
			claims{status("finished"), attempts(1), repeats(0), reports(1), pointsAt(1), waiting(0)}},
		{"replay", inTurn(republish, runs("A", forEver)),
			claims{status("finished"), attempts(1), repeats(1), requests(1), reports(1), waiting(0)}},
		{"cleanup", inTurn(keyRowGoes, providerForgets), claims{noTask(), reports(1)}},
		{"again", inTurn(republish, runs("A", forEver)),
			claims{status("finished"), attempts(1), requests(2), keysSent(1), reports(2), pointsAt(2), waiting(0)}},
	},
	breaks: []step{
		{"done", inTurn(publish, runs("A", inTime)),
			claims{status("finished"), attempts(1), reports(1), waiting(0)}},
		{"cleanup", inTurn(keyRowGoes, providerForgets), claims{noTask(), reports(1)}},
		{"again", inTurn(republish, runs("A", inTime)),
			claims{status("finished"), attempts(1), requests(2), keysSent(1), reports(2), pointsAt(2), waiting(0)}},
	},
}
