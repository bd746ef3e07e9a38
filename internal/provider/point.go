package provider

// Point is a moment in the life of a request at which [Options.OnPoint] is called.
type Point int

// The points, in their order. A request that creates nothing passes Received and Answered only; one that is
// refused as malformed passes Answered only.
const (
	Received     Point = iota + 1 // counted, read and well-formed; nothing is done yet
	BeforeCommit                  // the row is written or found, its transaction is open
	AfterCommit                   // the effect is there, the answer has not been sent
	Answered                      // the answer was sent, or the connection closed without one
)

// String returns the point's name as in the package comment.
func (p Point) String() string {
	switch p {
	case Received:
		return "Received"
	case BeforeCommit:
		return "BeforeCommit"
	case AfterCommit:
		return "AfterCommit"
	case Answered:
		return "Answered"
	}
	return "Point(0)"
}

// Call describes the request at a point.
type Call struct {
	Method string
	Path   string
	Key    string // the Idempotency-Key, or the one that a look-up asks for; may be empty

	UserAgent string // of the client

	OrderID string // of POST /charges
	TaskID  string // of POST /reports, as written

	ExternalID string // report or charge id, from BeforeCommit on
	Replayed   bool   // the effect was there before, from BeforeCommit on
	Status     int    // what was answered, at Answered; 0 is a connection closed without an answer
}
