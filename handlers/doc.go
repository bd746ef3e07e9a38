// Package handlers holds the reference kinds (payment.charge, report.create, contact.sync, contacts.import and receipt.send)
// and the rules for HTTP calls to a provider that they share. Kinds of others call by the same rules through Client.Do.
//
// What an answer to a POST means:
//
//	200, 201               done, if the body is whole and names the effect; otherwise unknown
//	202                    accepted: the effect's id is polled
//	400, 402               refused, for good
//	409, 422               by the provider's profile; else by the body: "idempotency_conflict" is a conflict,
//	                       "request_in_progress" is unknown and asked about soon, at no cost to the budget of failures;
//	                       any other 409 is unknown, any other 422 refused
//	401, 405               misconfigured, and nothing was applied
//	403, 404, 3xx          misconfigured, and the outcome is unknown; no redirect is ever followed
//	429                    not sent
//	408, 5xx, all others   unknown; a stored error that a resend would get again, if the answer is marked as replayed:
//	                       "replayed": true in the body, or the header Idempotent-Replayed: true
//
// What an answer to a look-up (GET) means:
//
//	200                    found, found refused or still running, by its status; contradictory if the content differs
//	404 "not_found"        absent
//	all others             cannot tell, also a 404 of any other body
//
// The wish of a Retry-After header goes with 429 and 503. An answer is kept for the row, and never quoted: error
// texts hold its status and the provider's short error code.
package handlers
