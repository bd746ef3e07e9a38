package consumertest

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/consumer"
)

// Subject is what Break breaks.
type Subject[J, R any] struct {
	// Kind makes the kind as a process does when it starts. Its requests have to go to url, through a
	// consumer.Transport. It is called once for each process, also at the same time.
	Kind func(url string) consumer.Kind[J, R]
	// Provider makes a fake of the provider at which nothing has happened yet.
	Provider func() Provider[J]
	// Jobs are at least two that are different operations, and that the fake accepts.
	Jobs []J
	// Setup makes the tables that Commit and Check use, in a database that has nothing but Settle's. Optional.
	Setup func(context.Context, *pgxpool.Pool) error
}

// Provider is a fake of a provider. Its methods are called at the same time.
type Provider[J any] struct {
	// Handler is its API.
	Handler http.Handler
	// Effects counts how often the effect of a job has happened, by the fake's own books. It has to go by what the job is
	// about (the order), not by the idempotency key: a wrong key is one of the things that are looked for.
	Effects func(J) int
	// Refuse answers a request for an effect as the provider does when it says no for good. Nil answers 402 and
	// {"error":"declined"}.
	Refuse http.HandlerFunc
	// IsLookup tells requests that only ask from those for an effect. Nil goes by the method: GET and HEAD ask.
	IsLookup func(*http.Request) bool
}

func (p Provider[J]) complete() Provider[J] {
	if p.Refuse == nil {
		p.Refuse = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = w.Write([]byte(`{"error":"declined"}`))
		}
	}
	if p.IsLookup == nil {
		p.IsLookup = func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
	}
	return p
}
