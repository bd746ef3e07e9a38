package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// What the publisher of the first charge says of its trace.
const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	trace   = "00-" + traceID + "-b7ad6b7169203331-01"
)

// longOrder is the number of an order as some shops write it.
const longOrder = "2026-11-30/web-shop-north/basket-00000000000000000000000018466"

// story is what happened before somebody looks: a task of each status, and messages that are no task.
type story struct {
	*stage
	url string // of the screen
	ann person // who only looks

	crashed  idemstore.Task // its worker was killed after the effect; done, and repeated twice
	plain    idemstore.Task // done; another charge of the same customer
	long     idemstore.Task // done; its key is too long to be the provider's too
	declined idemstore.Task
	unknown  idemstore.Task // the answer was lost, and the provider cannot be asked
	review   idemstore.Task // its amount is not the order's
	twice    idemstore.Task // the provider has another charge for it
	waiting  idemstore.Task // nothing was sent
}

func charge(order, customer string, cents int) string {
	return fmt.Sprintf(`{"order_id":%q,"customer_id":%q,"amount":%d,"currency":"EUR"}`, order, customer, cents)
}

// tell plays the story, with the program's own workers, and leaves one at work.
func tell(t *testing.T) *story {
	t.Helper()
	s := &story{stage: newStage(t, "order_18452")}
	send := func(order, customer string, headers ...string) {
		s.publish("jobs."+chargeKind, charge(order, customer, 1200), headers...)
	}

	doomed := s.run("work")
	send("18452", "c_17", "traceparent", trace)
	rig.Await(t, s.killing, soon, "the charge is made and not answered")
	doomed.Signal(9)
	if e := doomed.Wait(soon); !e.Killed() {
		t.Fatalf("the worker ended with %s", e)
	}
	close(s.killed)

	const never = "3600" // seconds; for the length of a test
	s.faults(
		provider.Fault{Key: "order_18460", Count: 1, Close: provider.After},
		provider.Fault{Key: "order_18460", Method: "GET", Status: 503, RetryAfter: never},
		provider.Fault{Key: "order_18462", Count: 1, Close: provider.After},
		provider.Fault{Key: "order_18462", Method: "GET",
			Body: []byte(`{"charge_id":"ch_of_another","status":"succeeded","order_id":"18462","amount":99900,"currency":"EUR"}`)},
		provider.Fault{Key: "order_18463", Status: 429, RetryAfter: never},
	)
	s.exec(`insert into shop.orders (order_id, customer_id, amount, currency) values ('18461', 'c_21', 9900, 'EUR')`)
	worker := s.run("work")
	t.Cleanup(func() { s.drain(worker) })
	s.becomes("order_18452", idemstore.Finished)
	for range 2 {
		send("18452", "c_17", "traceparent", trace)
	}
	send("18453", "c_17")
	send(longOrder, "c_18")
	send("18454", "c_declined")
	send("18460", "c_20")
	send("18461", "c_21")
	send("18462", "c_22")
	send("18463", "c_23")
	s.publish("jobs."+chargeKind, `{"order_id":"18464",`)
	s.publish("jobs.parcel.send", `{"parcel":1}`) // a kind that nobody serves

	s.crashed = s.reaches("order_18452", "repeated twice", func(t idemstore.Task) bool { return t.Duplicates == 2 })
	s.plain = s.becomes("order_18453", idemstore.Finished)
	s.long = s.becomes("order_"+longOrder, idemstore.Finished)
	s.declined = s.becomes("order_18454", idemstore.Failed)
	s.unknown = s.reaches("order_18460", "unknown for long", func(t idemstore.Task) bool {
		return t.Status == idemstore.Unknown && time.Until(t.NextAttemptAt) > time.Minute
	})
	s.review = s.becomes("order_18461", idemstore.NeedsReview)
	s.twice = s.becomes("order_18462", idemstore.NeedsReview)
	s.waiting = s.reaches("order_18463", "waiting", func(t idemstore.Task) bool {
		return t.Status == idemstore.Started && t.LeaseUntil == nil && time.Until(t.NextAttemptAt) > time.Minute
	})
	s.publish("jobs."+chargeKind, charge("18453", "c_17", 9900)) // the same key, another amount
	s.refused(2)
	s.does("pause", "report.create", "--reason", "the provider repairs its disks")
	s.ann = s.person("ann", "viewer")
	s.url = s.serve()
	return s
}
