// Package consumer takes jobs from NATS JetStream, makes the external effect of each job happen once per business
// key, commits the result to Postgres, and only then acks.
//
// # The promise
//
// One business key, at most one effect at a provider that keeps keys, whatever crashes; never a lost job; never a
// guess. Where the outcome cannot be known the task says "unknown", the provider is asked, and if nobody can tell,
// a person is.
//
// It holds while both sides keep the key, while committed rows and acknowledged publishes survive, and, at a
// provider without keys, while a worker does not stand still between its last look at the clock and the socket for
// longer than the absent-after time. No lease policy recalls a request that has left.
//
// # The words
//
// A message is in the stream; a delivery is one try of JetStream at it. A job is a decoded message of a kind
// ("payment.charge"). Its key is the business key, unique within the kind; the task is the row for kind and key. An
// attempt is one claim of a task; its number and its random token are the fence. It holds the lease. The effect is
// what happens at the provider, under the provider key; the external id is the provider's name for it. A verdict is
// what a look-up says. The result is what is stored and replayed. To save is to commit the outcome; to settle is to
// ack, nak with a delay, term, or stay silent. A refusal is a message that was never accepted.
//
// # The life of a delivery
//
//	receive → decode → claim → (replay | hand back | look up | perform) → save → settle
//
// The claim commits before anything leaves the process. No transaction is open while a handler runs. The save writes
// status, result, external id, local rows and events in one transaction under the fence. What is said to the broker
// comes after the commit that makes it true (settle.go). One sentence to carry away: "known not applied" is a
// statement about every attempt so far, not about the last one; and the fence protects the row, never the socket:
// the socket has a gate of its own (gate.go).
//
// # What a claim finds
//
// The first line that fits. The claim's statement decides it under the row's lock; decideClaim is the same table.
//
//	 1  no row                                       insert, attempt 1, perform
//	 2  the row is locked by somebody                nak, soon
//	 3  hashed by an algorithm unknown here          alert; nak, late
//	 4  other content, and not the row's own message conflict: refusal, alert; term
//	 5  finished, failed                             replay; ack
//	 6  needs_review                                 note; term
//	 7  started, lease live                          busy; nak for the rest of the lease
//	 8  nobody holds it, not due                     nak until due
//	 9  due, but budget or age is used up            needs_review; term
//	10  started, lease expired, it was sending       ask                    failures + 1
//	11  started, lease expired, it only asked        unsure: ask, else perform   failures + 1
//	12  unknown                                      ask
//	13  started, no lease: released                  perform
//	    anything that the constraints exclude        ask
//
// # Without a message
//
// Every engine also takes up what no message may ever bring: messages are deleted, streams are lost, workers die. At its
// start and every Config.RecoverEvery it chooses tasks that are started or unknown, that nobody holds and that are due, the
// longest due first, and claims each of them by lines 7 to 13 (recover.go). So a message and any number of recoveries may
// want a task at once, and one of them gets it; and from its first committed claim on a job is never lost. Recovery has
// at most half of a kind's slots, and an eighth while messages have more than a quarter of them; the only one takes turns.
//
// Whoever asked for an answer (reply.go) gets it through the message, when that comes again. Only where the message is not in
// its stream any more does recovery answer, from the row.
//
// A task that needs a person only because budget or age is used up is asked about once an hour, and never sent. A definite
// answer closes it, if it is still as it was. Engine.Recover does all of this once, for a person.
//
// # Jobs without a provider
//
// The effect of a local kind is rows in the same database (local.go). On its first delivery claim, rows and result are one
// transaction, the only one that is open while a handler runs; a crash undoes all of it. Quick jobs share a transaction, and
// what is wrong with one of them stays with it (localgroup.go). From the second delivery on the claim commits first: a job that
// kills its process would do so for ever without a trace. A step kind commits its claim, and then one transaction per step
// under the fence (steps.go).
//
// # What the broker gives up
//
// A consumer with MaxDeliver leaves messages in the stream that it delivers to nobody. The engine makes none such, and takes
// up what others' give up: it listens for the server's advisories, and looks at its start and every two minutes for what is
// stored and neither undelivered nor under way (givenup.go). Such a message goes the way of every delivery; instead of an
// ack it is removed from the stream, after the commit.
//
// # What a perform may come to
//
//	done                              finished, local rows, events; ack
//	done, another id than the row's   needs_review; term
//	done, local rows refused          needs_review with result and id; term
//	accepted                          id at once; unknown until polled; nak
//	refused                           failed, local rows; ack. Unknown, if an earlier attempt may have been
//	                                  applied and the provider would not have replayed what that one got
//	not sent                          released, or unknown if an earlier attempt may have been applied; nak
//	misconfigured                     unknown, or as not sent after 401, 405; alert; nak, late
//	conflict                          needs_review; term
//	an earlier request still at work  unknown; nak
//	an error stored under the key     unknown, due when a look-up must know; nak. Then, or where nobody can be
//	                                  asked, needs_review; term
//	anything else                     unknown; failures + 1; nak
//	done or refused, beside late      unknown, and the proof is asked about; needs_review if that makes two effects
//	proof of something else
//	lease lost                        nothing; late proof is left as evidence; silent
//
// "Not sent" is the engine's own judgement: the gate was shut before anything passed, or each request ended before
// it had a connection or with a status that applied nothing. A handler's word for it counts only if that agrees.
// Handlers say what they know with Accepted, Refused, NotSent, Misconfigured, Conflict, InProgress and Replayed; every other
// error, and UnknownAfter, is "anything else".
//
// # What a look-up may say
//
//	found, found refused      finished, failed; local rows; ack
//	contradictory             needs_review
//	still running             unknown; nak
//	cannot tell               unknown; nak
//	absent, id known          needs_review
//	absent, key young         arm, perform with the same key
//	absent, not settled       unknown; nak until settled
//	absent, first reading     noted; unknown; nak
//	absent, second reading    arm, perform, if a resend is permitted: by a person, or by the kind and to the provider that
//	                          it was sent to; else needs_review
//	no look-up declared       arm, perform while the key is young; else needs_review
//
// A key is young while the provider surely still has it. A reading is settled from the absent-after time after the
// last possible send on. To arm is to confirm the lease by SQL once more, right before a resend.
//
// # What a person may do
//
// To one task, with Operator. Each act compares status and attempt number with what was shown, in its statement, and
// leaves a new number and token, so that an attempt that is still at work cannot undo it. decideAct is this table.
//
//	ask now      unknown, needs_review, lease expired    read-only; closes on found, found refused,
//	                                                     unless two ids are known
//	retry        needs_review, done but not booked       local rows only, from the stored result
//	retry        needs_review, nothing left              released
//	retry        needs_review, failed                    unknown: asks first
//	send again   unknown, needs_review; may have left    the same, and one resend without the key's protection
//	resolve      unknown, needs_review, lease expired,   finished or failed, local rows; the provider is asked first
//	             with force also a live lease,           while that is still at work it takes force
//	             and what the provider is at work on
//	cancel       released; needs_review, nothing left    failed, local rows
//	supersede    needs_review, nothing left              other content, released
//	note         any                                     an audit line
//
// A retry gives the budget back and makes the task due. It needs no message.
//
// # The order of an entity
//
// Jobs that are events of a changing thing (Kind.Entity) take an order guard right before each send. Its row is locked
// while it is decided (idemstore, guardDecide; decideGuard is the same table), by the first line that fits:
//
//	this version or a newer one applied by another task     stale: finished unsent, Commit sees Skipped
//	another task holds it, and may be under way             held: given back, free of charge
//	only a number here, only a time there                   needs_review
//	the holder waits for a person, may have been applied,
//	    and is not older                                    held
//	anything else                                           taken: the send goes on
//
// "May be under way" is unknown, or started with a lease, run out or not. A stale event whose earlier attempt may have
// been applied is finished only where "absent" is settled and was read twice; until then asking goes on. The version
// moves on in the commit of the save, whoever learnt that the effect is there, and each part of it only grows.
//
// # When less is done
//
// Three things stand between a task that is due and its provider. What they hold back costs no failure: a task that was
// never sent is given back, one that would be sent again stays unknown.
//
//	paused, or asking only    a person says so; settle.controls, read with each heartbeat (modes.go)
//	the breaker is open       the provider fails for all; one call at a time, one per interval, tries it (breaker.go)
//	the cap is used up        what all workers together may call per second, or at once (share.go)
//
// A person is called once per cause, not once per task (alert.go).
//
// # Where a crash leaves things
//
//	before the claim commits     the stream still has the message: as if nothing happened
//	claimed, nothing sent        the lease runs out; the next attempt asks, hears "absent", sends the same key
//	the message gone meanwhile   the same: that attempt is a recovery's
//	sent, effect or not          the same; it hears "found" and adopts the id, or the key replays the answer
//	save sent, answer lost       the row is read again by id and token before anything is concluded
//	saved, not acked             the message comes again and is answered from the row
//	acked, the broker forgets    the same
//	frozen past the lease        the gate is shut by its own clock: it sends nothing, saves nothing, says nothing
package consumer
