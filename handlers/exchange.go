package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/settlemq/settle/consumer"
)

const (
	// defaultPoll is how soon a provider that has accepted a job is asked again.
	defaultPoll = time.Second

	statusPending = "pending"
)

// resource is a thing that the provider creates, and the words of its answers.
type resource struct {
	path    string // "charges"
	idName  string // the member with its id
	done    string // its status once the effect has happened
	refused string // its status once it is refused for good
}

// effect is what the provider tells about one of them.
type effect struct{ id, status, code string }

// create asks for the effect with a POST and says what came of it.
func create[J any](ctx context.Context, c *Client, r resource, a *consumer.Attempt[J], body any, p consumer.Provider, poll time.Duration) (effect, error) {
	got, err := c.do(ctx, call{
		method: http.MethodPost, path: []string{r.path}, route: "/" + r.path,
		key: a.ProviderKey, body: body, deadline: a.Deadline,
	})
	if err != nil {
		return effect{}, err
	}
	a.KeepAnswer(got.status, got.body)
	return r.performed(got, p, orDefault(poll, defaultPoll))
}

// performed is what the answer to a POST says: what it tells about the effect, and the outcome.
func (r resource) performed(got answer, p consumer.Provider, poll time.Duration) (effect, error) {
	if err := got.outcome(p); err != nil {
		return r.denied(got, p), err
	}
	e, err := r.read(got)
	if err != nil {
		return effect{}, err
	}
	switch {
	case got.status == http.StatusAccepted, e.status == statusPending:
		e.status = statusPending
		return e, consumer.Accepted(poll)
	case e.status == r.done, e.status == "":
		e.status = r.done
		return e, nil
	case e.status == r.refused:
		return e, consumer.Refused(got.problem())
	}
	return effect{}, got.about(errStatus)
}

// find asks what became of the effect. same compares an answer's content with the job.
func find[J any](ctx context.Context, c *Client, r resource, a *consumer.Attempt[J], same func(answer) (bool, error)) (effect, consumer.Verdict, error) {
	got, unserved, err := lookUp(ctx, c, r, a)
	if err != nil {
		return effect{}, consumer.CannotTell, err
	}
	a.KeepAnswer(got.status, got.body)
	switch {
	case got.absent() && !unserved: // a key may be forgotten whose id is known
		return effect{}, consumer.Absent, nil
	case got.status != http.StatusOK:
		return effect{}, consumer.CannotTell, got.unknown()
	}
	e, err := r.read(got)
	if err != nil {
		return effect{}, consumer.CannotTell, err
	}
	return r.verdict(got, e, a.ExternalID, same)
}

// lookUp asks for the effect by its id if that is known, else by the key: also where the provider does not serve the former.
func lookUp[J any](ctx context.Context, c *Client, r resource, a *consumer.Attempt[J]) (got answer, unserved bool, err error) {
	ask := call{method: http.MethodGet, path: []string{r.path}, route: "/" + r.path, deadline: a.Deadline}
	if a.ExternalID != "" {
		byID := ask
		byID.path, byID.route = []string{r.path, a.ExternalID}, ask.route+"/{id}"
		got, err = c.do(ctx, byID)
		if unserved = err == nil && got.status == http.StatusNotFound && !got.absent(); !unserved {
			return got, false, err
		}
	}
	ask.query = url.Values{"idempotency_key": {a.ProviderKey}}
	got, err = c.do(ctx, ask)
	return got, unserved, err
}

func (r resource) verdict(got answer, e effect, asked string, same func(answer) (bool, error)) (effect, consumer.Verdict, error) {
	ok, err := same(got)
	switch {
	case err != nil:
		return effect{}, consumer.CannotTell, err
	case !ok, asked != "" && e.id != asked:
		return e, consumer.Contradictory, nil
	case e.status == r.done:
		return e, consumer.Found, nil
	case e.status == r.refused:
		return e, consumer.FoundRefused, nil
	case e.status == statusPending:
		return e, consumer.Running, nil
	}
	return effect{}, consumer.CannotTell, got.about(errStatus)
}

// read takes the effect out of a whole answer. It has an id; it may have no status.
func (r resource) read(got answer) (effect, error) {
	var members map[string]json.RawMessage
	if err := got.decode(&members); err != nil {
		return effect{}, err
	}
	e := effect{id: got.member(r.idName), status: got.member("status")}
	if !usableID(e.id) {
		return effect{}, got.about(errBadID)
	}
	if _, present := members["status"]; present && e.status == "" {
		return effect{}, got.about(errStatus)
	}
	if e.status == r.refused {
		e.code = got.code()
	}
	return e, nil
}

// denied is what a refusal tells about the effect, which may be very little, and the id of one that exists. Other
// failures tell nothing.
func (r resource) denied(got answer, p consumer.Provider) (e effect) {
	switch got.meaning(p) {
	case consumer.MeansRefused:
		e = effect{status: r.refused, code: got.code()}
	case consumer.MeansExists:
	case consumer.MeansConflict, consumer.MeansInProgress, consumer.MeansByBody:
		return e
	}
	if id := got.member(r.idName); usableID(id) {
		e.id = id
	}
	return e
}

func orDefault(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}
