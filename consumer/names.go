package consumer

// Names of spans, attributes and log fields. Everything that a dashboard or a search may rest on is here.
const (
	scopeName = "github.com/settlemq/settle/consumer"

	spanPublish        = "settle.publish"
	spanDeliver        = "settle.deliver"
	spanClaim          = "settle.claim"
	spanCheck          = "settle.check"
	spanGuard          = "settle.guard"
	spanPerform        = "settle.perform"
	spanApply          = "settle.apply"
	spanStep           = "settle.step"
	spanLookup         = "settle.lookup"
	spanArm            = "settle.arm"
	spanSave           = "settle.save"
	spanSaveExternalID = "settle.save_external_id"
	spanRelease        = "settle.release"
	spanRefuse         = "settle.refuse"
	spanSettle         = "settle.settle"
	spanAct            = "settle.act"
	spanRecover        = "settle.recover"

	attrTask        = "settle.task.id"
	attrKind        = "settle.kind"
	attrKey         = "settle.key"
	attrProviderKey = "settle.provider_key"
	attrAttempt     = "settle.attempt"
	attrExternalID  = "settle.external_id"
	attrOutcome     = "settle.outcome"
	attrStatus      = "settle.status"
	attrFound       = "settle.found"
	attrVerdict     = "settle.verdict"
	attrDuplicate   = "settle.duplicate"
	attrRefusal     = "settle.refusal"
	attrVerb        = "settle.verb"
	attrStep        = "settle.step"
	attrAct         = "settle.act"
	attrActor       = "settle.actor"
	attrReplayed    = "settle.replayed"
	attrCause       = "settle.review_cause"
	attrLink        = "settle.link"

	attrReplyIgnored = "settle.reply_ignored"

	attrSystem      = "messaging.system"
	attrDestination = "messaging.destination.name"
	attrGroup       = "messaging.consumer.group.name"
	attrMessageID   = "messaging.message.id"
	attrBodySize    = "messaging.message.body.size"
	attrClient      = "messaging.client.id" // name of the connection, and its number at the server
	attrDelivered   = "settle.num_delivered"

	attrOperation     = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"

	// Events of a delivery, and attributes of the same names with the value true.
	eventLeaseLost     = "settle.lease_lost"
	eventHeartbeatLost = "settle.heartbeat_lost"
)

// Message headers.
const (
	headerMessageID   = "Nats-Msg-Id"
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
	headerReply       = "Settle-Reply"
	headerTask        = "Settle-Task"
	headerKey         = "Settle-Key"
	headerKind        = "Settle-Kind"
	headerStatus      = "Settle-Status"
	headerReplayed    = "Settle-Replayed"
)
