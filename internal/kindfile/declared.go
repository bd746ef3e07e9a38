package kindfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// Job is a job of any declared kind: its body, as it came. The zero value is an empty object.
type Job struct {
	raw  []byte
	tree any
}

// UnmarshalJSON keeps the body and its numbers exactly.
func (j *Job) UnmarshalJSON(text []byte) (err error) {
	j.raw = slices.Clone(text)
	j.tree, err = decodeJSON(text)
	return err
}

// MarshalJSON gives the body as it came.
func (j Job) MarshalJSON() ([]byte, error) {
	if j.raw == nil {
		return []byte("{}"), nil
	}
	return j.raw, nil
}

// Result is what is stored of an effect of any declared kind. The zero value is an empty object.
type Result struct{ raw []byte }

// UnmarshalJSON keeps the result as it is.
func (r *Result) UnmarshalJSON(text []byte) error {
	r.raw = slices.Clone(text)
	return nil
}

// MarshalJSON gives the result as it was made.
func (r Result) MarshalJSON() ([]byte, error) {
	if r.raw == nil {
		return []byte("{}"), nil
	}
	return r.raw, nil
}

// Options change what a file says.
type Options struct {
	// URL stands in place of provider.url.
	URL string
	// Policy, if set, changes what the file says about limits: flags go before it.
	Policy func(consumer.Policy) consumer.Policy
	// Base sends the requests; see handlers.ClientOptions.
	Base http.RoundTripper
}

// Definition is the kind as the engine runs it. Without the variables and files that it needs it can be described and
// published to; each of its calls is misconfigured then. See File.Ready.
func (k *Kind) Definition(o Options) (consumer.Kind[Job, Result], error) {
	d := declaredKind{Kind: k}
	var err error
	if d.api, err = k.client(o); err != nil {
		return consumer.Kind[Job, Result]{}, err
	}
	provider := k.provider
	if provider.Identity = d.api.Identity(); k.base.account != "" && provider.Identity != "" {
		provider.Identity += "#" + k.base.account
	}
	policy := k.policy
	if o.Policy != nil {
		policy = o.Policy(policy)
	}
	def := consumer.Kind[Job, Result]{
		Name: k.Name, Contract: k.contract, Policy: policy, Provider: provider,
		Content:    consumer.Content{Volatile: k.volatile, IDs: k.members.ids(), MaxBody: k.maxBody},
		Key:        d.keyOf,
		Perform:    d.perform,
		ExternalID: d.idOf,
	}
	if k.searchable != nil {
		def.Refs = d.refs
	}
	if k.order != nil {
		def.Entity = d.entity
	}
	if k.lookUp != nil {
		def.Lookup = d.look
	}
	return def, nil
}

// declaredKind does the work of a kind.
type declaredKind struct {
	*Kind
	api *handlers.Client
}

// keyOf also refuses a job of which no request can be made: no later attempt could do anything with it.
func (d declaredKind) keyOf(j Job) (string, error) {
	if err := d.members.check(j.tree); err != nil {
		return "", err
	}
	key, err := d.key.of(j.tree)
	if err != nil {
		return "", err
	}
	if d.order != nil && d.order.version != nil {
		if _, err := d.order.number(j.tree); err != nil {
			return "", err
		}
	}
	if _, err := d.send.request(scope{job: j.tree, key: key, providerKey: "key"}); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	return key, nil
}

func (d declaredKind) refs(j Job) consumer.Refs {
	refs := consumer.Refs{}
	for _, n := range d.searchable {
		if value, leftOut, err := n.text.render(scope{job: j.tree}, nil); err == nil && !leftOut {
			refs[n.name] = value
		}
	}
	return refs
}

func (d declaredKind) entity(j Job) (id string, v consumer.Version) {
	id, _, err := d.order.id.render(scope{job: j.tree}, nil)
	if err != nil {
		return "", v // the key has refused such a job
	}
	if d.order.version != nil {
		v.Number, _ = d.order.number(j.tree)
	}
	if d.order.updatedAt != nil {
		v.Time, _, _ = d.order.updatedAt.text(scope{job: j.tree})
	}
	return id, v
}

// number is the version of a job; nil if it has none.
func (o *order) number(job any) (*int64, error) {
	text, leftOut, err := o.version.text(scope{job: job})
	if err != nil || leftOut {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, errors.New("version: not an integer of 64 bits")
	}
	return &n, nil
}

func (d declaredKind) idOf(r Result) string {
	tree, err := decodeJSON(r.raw)
	if err != nil {
		return ""
	}
	v, _ := d.externalID.find(tree)
	id, _ := scalar(v)
	return id
}

func (d declaredKind) perform(ctx context.Context, a *consumer.Attempt[Job]) (Result, error) {
	req, err := d.send.request(scope{job: a.Job.tree, key: a.Key, providerKey: a.ProviderKey})
	if err != nil { // it was possible when the job was accepted: the file has changed
		return Result{}, consumer.Conflict(fmt.Errorf("send: %w", err))
	}
	if d.base.keyHeader != "" {
		req.Header.Set(d.base.keyHeader, a.ProviderKey)
	}
	req.Deadline = a.Deadline
	got, err := d.api.Do(ctx, req)
	if err != nil {
		return Result{}, err
	}
	a.KeepAnswer(got.Status(), got.Body())
	return d.performed(got)
}

// performed is what an answer to the request says. What no rule names is unknown.
func (d declaredKind) performed(got handlers.Answer) (Result, error) {
	said := replyOf(got)
	rule, err := match(d.send.answers, said)
	switch {
	case err != nil:
		return Result{}, got.About(err)
	case rule == nil && said.status < http.StatusMultipleChoices:
		return Result{}, got.About(said.noRule())
	case rule == nil:
		return Result{}, got.Failure()
	}
	switch rule.means { //nolint:exhaustive // unknown, and the others are of look-ups
	case done, accepted:
		r, err := d.effect(rule, said)
		if err != nil {
			return Result{}, got.About(err)
		}
		if rule.means == accepted {
			err = consumer.Accepted(d.send.poll)
		}
		return r, err
	case refused:
		return d.whatIsTold(rule, said), consumer.Refused(got.Problem())
	case exists:
		return d.whatIsTold(rule, said), got.Problem()
	case conflict:
		return Result{}, consumer.Conflict(got.Problem())
	case inProgress:
		return Result{}, consumer.InProgress(got.Problem())
	case notSent:
		return Result{}, consumer.NotSentAfter(got.RetryAfter(), got.Problem())
	case misconfigured:
		return Result{}, consumer.Misconfigured(got.Problem())
	}
	return Result{}, got.Unclear()
}

var (
	errNoRule  = errors.New("no rule fits this answer")
	errNotJSON = errors.New("answer is not the JSON that was expected")
	errNoID    = errors.New("answer has no usable external id")
	errResult  = errors.New("answer lacks what the result is made of")
	errCompare = errors.New("answer has an object or a list where the content is compared")
)

// effect is the result of an answer that says it happened. It has everything, and an id that can be used.
func (d declaredKind) effect(r *rule, said reply) (Result, error) {
	raw, err := d.resultOf(r).encode(scope{answer: said.body})
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", errResult, err)
	}
	out := Result{raw}
	if !handlers.UsableID(d.idOf(out)) {
		return Result{}, errNoID
	}
	return out, nil
}

// whatIsTold is the result of an answer that may say very little.
func (d declaredKind) whatIsTold(r *rule, said reply) Result {
	raw, err := d.resultOf(r).encode(scope{answer: said.body, lenient: true})
	if err != nil {
		return Result{}
	}
	if out := (Result{raw}); d.idOf(out) == "" || handlers.UsableID(d.idOf(out)) {
		return out
	}
	return Result{}
}

func (d declaredKind) resultOf(r *rule) *tree {
	if r.result != nil {
		return r.result
	}
	return d.result
}

func (d declaredKind) look(ctx context.Context, a *consumer.Attempt[Job]) (Result, consumer.Verdict, error) {
	ask, byID := d.lookUp.byKey, false
	if a.ExternalID != "" && d.lookUp.byID != nil {
		ask, byID = *d.lookUp.byID, true
	}
	s := scope{job: a.Job.tree, key: a.Key, providerKey: a.ProviderKey}
	if byID {
		s.externalID = a.ExternalID
	}
	req, err := ask.request(s)
	if err != nil {
		return Result{}, consumer.CannotTell, fmt.Errorf("look-up: %w", err)
	}
	req.Deadline = a.Deadline
	got, err := d.api.Do(ctx, req)
	if err != nil {
		return Result{}, consumer.CannotTell, err
	}
	a.KeepAnswer(got.Status(), got.Body())
	return d.verdict(got, a)
}

// verdict is what an answer to a look-up says. What no rule names cannot tell.
func (d declaredKind) verdict(got handlers.Answer, a *consumer.Attempt[Job]) (Result, consumer.Verdict, error) {
	said := replyOf(got)
	rule, err := match(d.lookUp.answers, said)
	switch {
	case err != nil:
		return Result{}, consumer.CannotTell, got.About(err)
	case rule == nil && said.status < http.StatusMultipleChoices:
		return Result{}, consumer.CannotTell, got.About(said.noRule())
	case rule == nil:
		return Result{}, consumer.CannotTell, got.Unclear()
	}
	switch rule.means { //nolint:exhaustive // cannot_tell, and the others are of sends
	case absent:
		return Result{}, consumer.Absent, nil
	case contradictory:
		return d.whatIsTold(rule, said), consumer.Contradictory, nil
	case found, foundRefused, running:
		return d.known(rule, said, got, a)
	}
	return Result{}, consumer.CannotTell, got.Unclear()
}

// known is the verdict about an effect that the provider knows: another one than the job's contradicts it.
func (d declaredKind) known(rule *rule, said reply, got handlers.Answer, a *consumer.Attempt[Job]) (Result, consumer.Verdict, error) {
	r := d.whatIsTold(rule, said)
	if rule.means == found {
		var err error
		if r, err = d.effect(rule, said); err != nil {
			return Result{}, consumer.CannotTell, got.About(err)
		}
	}
	same, err := d.lookUp.isSame(a.Job.tree, said.body)
	if err != nil {
		return Result{}, consumer.CannotTell, got.About(err)
	}
	if id := d.idOf(r); !same || a.ExternalID != "" && id != "" && id != a.ExternalID {
		return r, consumer.Contradictory, nil
	}
	switch rule.means { //nolint:exhaustive // verdict has seen to the others
	case found:
		return r, consumer.Found, nil
	case foundRefused:
		return r, consumer.FoundRefused, nil
	}
	return r, consumer.Running, nil
}

// isSame compares what an answer tells with the job. What it does not tell is not compared.
func (l *lookUp) isSame(job, answer any) (bool, error) {
	for _, c := range l.same {
		v, told := c.path.find(answer)
		want, leftOut, err := c.text.render(scope{job: job}, nil)
		if err != nil || !told || leftOut {
			if err != nil {
				return false, err
			}
			continue
		}
		said, ok := scalar(v)
		switch {
		case !ok:
			return false, errCompare
		case said != want:
			return false, nil
		}
	}
	return true, nil
}

// noRule says why an answer that looks like a success means nothing.
func (a reply) noRule() error {
	switch {
	case !a.whole:
		return errCut
	case !a.isJSON:
		return errNotJSON
	}
	return errNoRule
}

func replyOf(got handlers.Answer) reply {
	said := reply{status: got.Status(), whole: got.Whole()}
	var raw json.RawMessage
	if got.Decode(&raw) != nil {
		return said
	}
	body, err := decodeJSON(raw)
	said.body, said.isJSON = body, err == nil
	return said
}
