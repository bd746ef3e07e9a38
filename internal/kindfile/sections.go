package kindfile

import (
	"net/http"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/settlemq/settle/consumer"
)

// answerRule is what a result is made of.
var answerRule = scopeRule{sources: []source{fromAnswer}}

// jobText is what texts are made of that a job alone decides about.
func (k *Kind) jobText() scopeRule {
	return scopeRule{sources: []source{fromJob}, members: k.members, isText: true}
}

// sendRule is what a request is made of.
func (k *Kind) sendRule(isText bool) scopeRule {
	return scopeRule{sources: []source{fromJob, fromKey, fromProviderKey}, members: k.members, isText: isText}
}

func (r *reader) contract(n *yaml.Node, k *Kind) {
	c := &k.contract
	*c = consumer.Contract{Rows: "none", Success: "an answer that the file says means done or found", SecondRun: "returns the stored result",
		StopRule: "an answer that means refused ends the job as failed; a person decides about a conflict, and about what nobody can tell within the limits"}
	r.object(n, "contract", fields{
		"effect":     r.textInto(&c.Effect, "contract.effect"),
		"success":    r.textInto(&c.Success, "contract.success"),
		"second_run": r.textInto(&c.SecondRun, "contract.second_run"),
		"stop_rule":  r.textInto(&c.StopRule, "contract.stop_rule"),
		"link":       r.textInto(&c.Link, "contract.link"),
		"hidden":     r.textsInto(&c.Hidden, "contract.hidden"),
	}, "effect")
}

func (r *reader) policy(n *yaml.Node, p *consumer.Policy) {
	r.object(n, "policy", fields{
		"lease_policy": func(n *yaml.Node) {
			switch r.text(n, "policy.lease_policy") {
			case "strict":
				p.Lease = consumer.Strict
			case "lenient":
				p.Lease = consumer.Lenient
			default:
				r.fail(n, "policy.lease_policy: strict or lenient is wanted")
			}
		},
		"deadline":            r.durationInto(&p.Deadline, "policy.deadline", time.Second),
		"max_failures":        r.countInto(&p.MaxFailures, "policy.max_failures", 1),
		"max_age":             r.durationInto(&p.MaxAge, "policy.max_age", time.Second),
		"backoff_min":         r.durationInto(&p.BackoffMin, "policy.backoff_min", 10*time.Millisecond),
		"backoff_max":         r.durationInto(&p.BackoffMax, "policy.backoff_max", 10*time.Millisecond),
		"retry_after_max":     r.durationInto(&p.RetryAfterMax, "policy.retry_after_max", time.Millisecond),
		"misconfigured_delay": r.durationInto(&p.MisconfiguredWait, "policy.misconfigured_delay", time.Millisecond),
		"retention":           r.durationInto(&p.Retention, "policy.retention", time.Millisecond),
	})
}

func (r *reader) providerProfile(n *yaml.Node, k *Kind) {
	p, b := &k.provider, &k.base
	secrets := scopeRule{sources: []source{fromVariable, fromFile}, isText: true}
	b.keyHeader = "Idempotency-Key"
	var keyed bool
	r.object(n, "provider", fields{
		"url":        func(n *yaml.Node) { b.url, b.urlLine = r.template(n, "provider.url", secrets), n.Line },
		"account":    r.textInto(&b.account, "provider.account"),
		"headers":    func(n *yaml.Node) { b.headers = r.headers(n, "provider.headers", secrets) },
		"timeout":    r.durationInto(&b.timeout, "provider.timeout", time.Millisecond),
		"keyed":      r.boolInto(&keyed, "provider.keyed"),
		"key_header": func(n *yaml.Node) { r.keyHeader(n, b) },
		"key_prefix": r.textInto(&p.KeyPrefix, "provider.key_prefix"),

		"key_lifetime":    r.durationInto(&p.KeyLifetime, "provider.key_lifetime", time.Millisecond),
		"stored":          r.statusListInto(&p.Stored, "provider.stored"),
		"absent_after":    r.durationInto(&p.AbsentAfter, "provider.absent_after", time.Millisecond),
		"resend_unkeyed":  r.boolInto(&p.ResendUnkeyed, "provider.resend_unkeyed"),
		"max_per_second":  r.rateInto(&p.MaxPerSecond, "provider.max_per_second"),
		"max_in_flight":   r.countInto(&p.MaxInFlight, "provider.max_in_flight", 1),
		"applied_nothing": r.statusListInto(&p.AppliedNothing, "provider.applied_nothing"),
	}, "url", "keyed")
	p.Unkeyed = !keyed
}

// keyHeader is the header that carries the provider key; none where it travels elsewhere.
func (r *reader) keyHeader(n *yaml.Node, b *base) {
	b.keyHeader = http.CanonicalHeaderKey(r.text(n, "provider.key_header"))
	switch {
	case b.keyHeader == "None":
		b.keyHeader = ""
	case !headerName.MatchString(b.keyHeader):
		r.fail(n, "provider.key_header: a header's name is wanted, or none")
	}
}

func (r *reader) content(n *yaml.Node, k *Kind) {
	r.object(n, "content", fields{
		"volatile": r.textsInto(&k.volatile, "content.volatile"),
		"max_body": r.countInto(&k.maxBody, "content.max_body", 2),
	})
}

func (r *reader) order(n *yaml.Node, k *Kind) {
	k.order = &order{}
	one := func(to **ref, what string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			t := r.template(n, what, k.jobText())
			if len(t) != 1 || t[0].ref == nil {
				r.fail(n, "%s: one placeholder is wanted, ${job.…}", what)
				return
			}
			*to = t[0].ref
		}
	}
	r.object(n, "order", fields{
		"entity": func(n *yaml.Node) {
			whole := k.jobText()
			whole.total = true
			if k.order.id = r.template(n, "order.entity", whole); len(k.order.id.refs()) != 1 {
				r.fail(n, "order.entity: one placeholder is wanted: two could be mistaken for others")
			}
		},
		"version":    one(&k.order.version, "order.version"),
		"updated_at": one(&k.order.updatedAt, "order.updated_at"),
	}, "entity")
	if k.order.version == nil && k.order.updatedAt == nil {
		r.fail(n, "order: version or updated_at is missing")
	}
}

func (r *reader) sendCall(n *yaml.Node, k *Kind) {
	c := &k.send
	c.method, c.poll = http.MethodPost, time.Second
	r.object(n, "send", fields{
		"method": func(n *yaml.Node) {
			switch c.method = r.text(n, "send.method"); c.method {
			case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
			default:
				r.fail(n, "send.method: POST, PUT, PATCH or DELETE is wanted")
			}
		},
		"path":    func(n *yaml.Node) { r.callPath(n, "send.path", k.sendRule(true), &c.call) },
		"query":   func(n *yaml.Node) { c.query = r.named(n, "send.query", k.sendRule(true)) },
		"headers": func(n *yaml.Node) { c.headers = r.headers(n, "send.headers", k.sendRule(true)) },
		"body":    func(n *yaml.Node) { c.body = r.tree(n, "send.body", k.sendRule(false)) },
		"form":    func(n *yaml.Node) { c.form = r.named(n, "send.form", k.sendRule(true)) },
		"poll":    r.durationInto(&c.poll, "send.poll", 10*time.Millisecond),
		"answers": func(n *yaml.Node) { c.answers = r.rules(n, "send.answers", sendMeanings, answerRule) },
	}, "path", "answers")
	if c.body != nil && c.form != nil {
		r.fail(n, "send: body or form, not both")
	}
}

func (r *reader) lookUpCall(n *yaml.Node, k *Kind) {
	l := &lookUp{line: n.Line}
	k.lookUp = l
	r.object(n, "look_up", fields{
		"by_key": func(n *yaml.Node) { l.byKey = r.getCall(n, "look_up.by_key", k.sendRule(true)) },
		"by_id": func(n *yaml.Node) {
			c := r.getCall(n, "look_up.by_id", scopeRule{sources: []source{fromExternalID, fromJob}, members: k.members, isText: true})
			l.byID = &c
		},
		"answers": func(n *yaml.Node) { l.answers = r.rules(n, "look_up.answers", lookUpMeanings, answerRule) },
		"same": func(n *yaml.Node) {
			for _, p := range r.pairs(n, "look_up.same") {
				l.same = append(l.same, comparison{r.path(p.name, p.name.Value, "look_up.same"),
					r.template(p.value, "look_up.same."+p.name.Value, k.jobText())})
			}
		},
	}, "by_key", "answers")
}

// getCall reads a request that only asks.
func (r *reader) getCall(n *yaml.Node, what string, allowed scopeRule) (c call) {
	c.method = http.MethodGet
	r.object(n, what, fields{
		"path":    func(n *yaml.Node) { r.callPath(n, what+".path", allowed, &c) },
		"query":   func(n *yaml.Node) { c.query = r.named(n, what+".query", allowed) },
		"headers": func(n *yaml.Node) { c.headers = r.headers(n, what+".headers", allowed) },
	}, "path")
	return c
}
