package handlers

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/settlemq/settle/consumer"
)

// defaultPoll is how soon a provider that has accepted a job is asked again.
const defaultPoll = time.Second

// post asks for the effect, keeps the answer for the row, and maps it. A nil error is a 200, 201 or 202.
func post[J any](ctx context.Context, c *Client, a *consumer.Attempt[J], resource string, body any) (answer, error) {
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: []string{resource}, route: "/" + resource,
		key: a.ProviderKey, body: body, deadline: a.Deadline,
	})
	if err != nil {
		return got, err
	}
	a.KeepAnswer(got.status, got.body)
	return got, got.outcome()
}

// lookUp asks what became of the effect: by its id if that is known, else by the key. read makes sense of a 200.
func lookUp[J, R any](ctx context.Context, c *Client, a *consumer.Attempt[J], resource string,
	read func(answer) (R, consumer.Verdict, error),
) (none R, v consumer.Verdict, err error) {
	ask := call{
		method: http.MethodGet, path: []string{resource}, route: "/" + resource,
		query: url.Values{"idempotency_key": {a.ProviderKey}}, deadline: a.Deadline,
	}
	if a.ExternalID != "" {
		ask.path, ask.route, ask.query = append(ask.path, a.ExternalID), ask.route+"/{id}", nil
	}
	got, err := c.do(ctx, ask)
	if err != nil {
		return none, consumer.CannotTell, err
	}
	a.KeepAnswer(got.status, got.body)
	switch {
	case got.absent():
		return none, consumer.Absent, nil
	case got.status != http.StatusOK:
		return none, consumer.CannotTell, got.unknown()
	}
	return read(got)
}

func orDefault(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}
