// Package access decides who may use the support screen. [Access.Wrap] puts it around a handler, [Access.Listen] around
// an address. A request passes these gates, in this order, and whatever is refused is answered here:
//
//	form       a known method, a path without tricks, no plain HTTP from the network except through a proxy
//	origin     no write that another site's page sent (net/http's CrossOriginProtection)
//	forged     the header that names a user, only from a listed proxy and only once
//	who        a proxy's header, a bearer token or a session; only /healthz, /readyz, the sign-in page and its stylesheet
//	           are for everybody
//	role       writes, which is any method but GET and HEAD, only for operators
//	size       a body up to its limit, read before the handler runs
//
// No GET may change anything: that is the handler's part. Each answer carries the same headers against framing, sniffing,
// scripts from elsewhere and caching, whatever the handler does with them.
//
// Sessions are random ids that only this process knows, not signed values: that is what lets sign-out, a removed user and
// a changed password end them at once. They end with the process, too.
package access

import "context"

// Role says what an actor may do. The zero value may do nothing.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // reads and acts
)

// Via says how an actor was recognised.
type Via string

// The ways in.
const (
	ViaPassword Via = "password" // signed in on the page; the request carried the session's cookie
	ViaToken    Via = "token"    // Authorization: Bearer
	ViaProxy    Via = "proxy"    // a listed proxy's header
)

// Actor is who sends a request.
type Actor struct {
	Name string // 1 to 128 bytes without control characters; what audit entries record
	Role Role
	Via  Via
}

// MayAct says whether the actor may change something.
func (a Actor) MayAct() bool { return a.Role == Operator }

type actorKey struct{}

// From is the actor of a request that came through [Access.Wrap], from the request's context. It is the zero Actor on
// what everybody may read, and where there was no Wrap.
func From(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}
