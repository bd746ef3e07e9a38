// Package provider is a stand-in for an external API that keeps idempotency keys: it creates reports and
// charges, remembers each key together with the effect, and misbehaves on request. The demo, the labs, the
// tests and `settle provider` use it; it stores everything in the Postgres schema "provider".
//
// # The rule of the key
//
//	new key                      201, "replayed": false
//	same key, same content       200, "replayed": true, the first id; a stored decline is 402 again
//	same key, other content      409 {"error": "idempotency_conflict"}
//	no key                       creates each time
//
// Uniqueness is a UNIQUE column and an insert that gives way; the loser reads the row and compares content
// hashes, all in one transaction (L8). Of two requests at the same moment the second waits on the unique index.
// Keys of reports and keys of charges do not meet. Content is compared as text, so an amount of 1200 and one of
// 1200.0 differ: a client that changes digits on the way is found out.
//
// A charge of the customer "c_declined" is declined, and so is any charge that meets the fault "decline".
//
// # What is counted
//
// W, the requests: one row in provider.requests for each request to the API, committed on receipt, before
// anything can go wrong; /stats shows POSTs only. E, the effects: reports and charges really created. A declined
// charge moved no money and a failed report made nothing, so neither is an effect. GET /stats and /faults, the
// controls, are not counted.
//
// A client that goes away does not stop its effect.
//
// # Faults
//
// A fault is a list of names, the same in three places: the header Settle-Fault of one request
// (`delay-after=900ms, status=503/after`; a value with a comma is quoted), a JSON list of rules for PUT /faults
// (`[{"key": "order_1*", "count": 1, "close": "after"}]`) and the struct [Fault] for [Server.SetFaults].
//
//	which requests (rules only)
//	  key=K              this Idempotency-Key, or this beginning where K ends with *; default: any, and none
//	  method=M           GET for look-ups, * for all; default: POST
//	  path=P             this path, or this beginning where P ends with *; default: any
//	  count=N            for the first N requests that meet the rule; default: no limit
//	what becomes of the effect
//	  ignore-keys        the key is recorded and found by look-ups (the newest wins); nothing is deduplicated
//	  forget-after=T     keys older than T do not deduplicate any more; look-ups still find what they made
//	  hide=T             look-ups by key do not find what this request creates, for T (index lag)
//	  pending=T          202; ready after T
//	  pending-fails      with pending: a report ends as failed, a charge as declined
//	  decline            a charge is declined; stored and replayed under its key
//	what becomes of the answer
//	  delay-before=T     wait before the effect (no transaction is open)
//	  delay-after=T      wait after the commit, before the answer
//	  close=before|after close the connection without an answer, before or after the effect
//	  status=N[/after]   answer N; without /after, and with /before, nothing is applied
//	  stored             with status=N: the answer is stored under the key, in memory, and is all that later requests
//	                     with the key get, marked as replayed: "replayed": true, and a header Idempotent-Replayed
//	  in-progress        409 {"error": "request_in_progress"}; nothing is applied
//	  redirect=URL       Location: URL, status 307 unless status says 301 to 308; nothing is applied unless /after
//	  retry-after=TEXT   the header Retry-After, verbatim
//	  cut=length|chunk   half the body, then close: short of its Content-Length, or inside a chunk
//	  body=TEXT          these bytes as the body; `body=` is an empty one
//	  body-base64=TEXT   the same for bytes that are not text
//
// With status=N/after the true body is kept below 500 and replaced by an error from 500 on.
//
// Several rules can meet one request. The request's own header comes first, then the rules in their order. What
// becomes of the effect is combined, earlier ones first; what becomes of the answer is taken from one rule only,
// and a later rule with an answer of its own is then neither used nor counted. So a list of rules with count=1
// is a sequence of answers.
//
// # Points
//
// [Options.OnPoint] is called synchronously at [Received], [BeforeCommit], [AfterCommit] and [Answered]. The
// request stands still until it returns, which is how tests order races and how the demo aims its kills.
package provider
