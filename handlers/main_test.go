package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// provider answers with handle and counts its requests. It ends with the test.
func provider(t *testing.T, handle http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	requests := new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s, requests
}

// client is a client of the provider at url whose connections end with the test.
func client(t *testing.T, o ClientOptions) *Client {
	t.Helper()
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// says answers with a status, a body and headers given in pairs.
func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// breaksOff sends the beginning of an answer and hangs up.
func breaksOff(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		says(status, body, headers...)(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// hangsUp closes the connection without an answer.
func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// The classes of outcomeOf.
const (
	done          = "done"
	accepted      = "accepted"
	refused       = "refused"
	conflict      = "conflict"
	misconfigured = "misconfigured"
	notSent       = "not sent"
	inProgress    = "in progress"
	replayedError = "replayed error"
	unknown       = "unknown"
)

// outcomeOf names what a handler's error says to the engine, and the wait that it asks for.
func outcomeOf(err error) (class string, wait time.Duration) {
	if err == nil {
		return done, 0
	}
	for class, like := range map[string]error{
		accepted: consumer.Accepted(0), refused: consumer.Refused(nil), conflict: consumer.Conflict(nil),
		misconfigured: consumer.Misconfigured(nil), notSent: consumer.NotSent(nil),
		inProgress: consumer.InProgress(nil), replayedError: consumer.Replayed(nil),
	} {
		if errors.Is(err, like) {
			return class, waitOf(err)
		}
	}
	return unknown, waitOf(err)
}

// waitOf reads the wait out of an error that one of consumer's constructors made: only the engine may ask for it.
func waitOf(err error) time.Duration {
	v := reflect.ValueOf(err)
	if v.Kind() != reflect.Pointer || !v.Elem().FieldByName("after").IsValid() {
		return 0
	}
	return time.Duration(v.Elem().FieldByName("after").Int())
}

func chargeJob() ChargeJob {
	return ChargeJob{OrderID: consumer.NewID("18452"), CustomerID: "c_17", Amount: "1200", Currency: "EUR"}
}

func chargeAttempt() *consumer.Attempt[ChargeJob] {
	return &consumer.Attempt[ChargeJob]{Job: chargeJob(), TaskID: 1, Number: 1, Key: "order_18452", ProviderKey: "order_18452"}
}

func reportAttempt() *consumer.Attempt[ReportJob] {
	return &consumer.Attempt[ReportJob]{
		Job: ReportJob{TaskID: NewIntegerID("42"), ReportType: "monthly"}, TaskID: 2, Number: 1,
		Key: "report-task-42", ProviderKey: "report-task-42",
	}
}

// performCharge makes one charge at the provider.
func performCharge(ctx context.Context, c *Client) (ChargeResult, error) {
	return Charge(c, ChargeOptions{}).Perform(ctx, chargeAttempt())
}
