package kindfile

import (
	"errors"
	"slices"
	"strings"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
)

// check finds what is right alone and wrong, or dangerous, together.
func (r *reader) check(k *Kind) {
	r.checkKey(k)
	r.checkResult(k)
	r.checkSendRules(k)
	r.checkLookUp(k)
	r.checkProfile(k)
	r.checkDescription(k)
	r.checkOrder(k)
}

func (r *reader) failAt(line int, format string, args ...any) {
	r.warn(line, format, args...)
	r.problems[len(r.problems)-1].Warning = false
}

func (r *reader) checkKey(k *Kind) {
	for _, ref := range k.key.refs() {
		if slices.Contains(k.volatile, ref.path[0].name) {
			r.failAt(k.Line, "key: %s is volatile: honest repeats would be other jobs", ref.as)
		}
	}
	prefix := ""
	if k.key.text[0].ref == nil {
		prefix = k.key.text[0].literal
	}
	if p := k.provider.KeyPrefix; p != "" && !strings.HasPrefix(prefix, p) {
		r.failAt(k.Line, "provider.key_prefix: no key begins with %q; they begin with %q", p, prefix)
	}
}

func (r *reader) checkResult(k *Kind) {
	at := k.result.at(k.externalID)
	if at == nil || at.kind != textTree {
		r.failAt(k.Line, "external_id: it is a path into result, to a text that is taken from the answer")
	}
}

func (r *reader) checkSendRules(k *Kind) {
	r.checkReach(k.send.answers, "send.answers")
	says := func(m means) bool {
		return slices.ContainsFunc(k.send.answers, func(r rule) bool { return r.means == m })
	}
	if !says(done) && !says(accepted) {
		r.failAt(k.Line, "send.answers: no answer means done, so no job would ever be finished")
	}
	if (says(accepted) || says(exists)) && k.lookUp == nil {
		r.failAt(k.Line, "send.answers: accepted and exists need a look_up: nobody else can say how it ended")
	}
	for _, rule := range k.send.answers {
		for _, s := range rule.status {
			r.checkMeaning(k, rule, s)
		}
	}
	if sent := slices.ContainsFunc(k.send.refs(), func(r *ref) bool { return r.source == fromProviderKey }); !k.provider.Unkeyed && k.base.keyHeader == "" && !sent {
		r.failAt(k.Line, "provider.key_header: the provider is keyed, and ${provider_key} is sent nowhere")
	}
}

func (r *reader) checkMeaning(k *Kind, rule rule, s statusRange) {
	switch rule.means { //nolint:exhaustive // the others are of look-ups
	case done, accepted, exists:
		if s.from < 200 || s.to > 299 && rule.means != exists {
			r.warn(rule.line, "send.answers: %s with a status other than 2xx: are you sure that the effect happened?", rule.means)
		}
	case refused:
		if s.to >= 500 || s.from < 400 && !rule.looksInside() || s.from <= 408 && 408 <= s.to || s.from <= 429 && 429 <= s.to {
			r.warn(rule.line, "send.answers: refused is for good; 408, 429 and 5xx, and a 2xx whatever its body says, usually are not")
		}
	case notSent:
		if nothing := k.appliedNothing(); s.from != s.to || !slices.Contains(nothing, s.from) {
			r.warn(rule.line, "send.answers: not_sent counts as unknown unless provider.applied_nothing has the status, too")
		}
	case conflict, inProgress, misconfigured, unknown:
	}
}

func (k *Kind) appliedNothing() []int {
	if k.provider.AppliedNothing != nil {
		return k.provider.AppliedNothing
	}
	return consumer.DefaultProvider().AppliedNothing
}

// checkReach finds rules that no answer comes to.
func (r *reader) checkReach(rules []rule, what string) {
	var taken []statusRange
	for _, rule := range rules {
		hidden := len(rule.status) > 0
		for _, s := range rule.status {
			hidden = hidden && slices.ContainsFunc(taken, func(t statusRange) bool { return t.from <= s.from && s.to <= t.to })
		}
		if hidden {
			r.failAt(rule.line, "%s: no answer comes to this rule: an earlier one takes its statuses, whatever the body is", what)
		}
		if !rule.looksInside() {
			taken = append(taken, rule.status...)
		}
	}
}

func (r *reader) checkLookUp(k *Kind) {
	l := k.lookUp
	if l == nil {
		r.warnNoLookUp(k)
		return
	}
	r.checkReach(l.answers, "look_up.answers")
	says := func(m means) bool { return slices.ContainsFunc(l.answers, func(r rule) bool { return r.means == m }) }
	if !says(found) {
		r.failAt(l.line, "look_up.answers: no answer means found")
	}
	if !says(absent) {
		r.warn(l.line, "look_up.answers: no answer means absent: what the provider does not know ends with a person")
	}
	for _, rule := range l.answers {
		if rule.means == absent && !rule.looksInside() {
			r.warn(rule.line, "look_up.answers: absent by its status alone: the 404 of a proxy or a wrong path would count, and the effect could be "+
				"made twice; add where, has or lacks")
		}
	}
	if len(l.byKey.refs()) == 0 {
		r.failAt(l.line, "look_up.by_key: it names nothing of the job, so it asks about nothing")
	}
	if l.byID != nil && !slices.ContainsFunc(l.byID.refs(), func(r *ref) bool { return r.source == fromExternalID }) {
		r.failAt(l.line, "look_up.by_id: ${external_id} is missing")
	}
	if len(l.same) == 0 {
		r.warn(l.line, "look_up.same: nothing is compared: an effect with other content would count as this job's")
	}
}

func (r *reader) warnNoLookUp(k *Kind) {
	if k.provider.Unkeyed {
		r.warn(k.Line, "no look_up for a provider without keys: each outcome that is unknown needs a person")
		return
	}
	r.warn(k.Line, "no look_up: an outcome that is still unknown when the provider's key is old needs a person")
}

func (r *reader) checkProfile(k *Kind) {
	p := k.provider
	if p.Unkeyed && p.ResendUnkeyed {
		r.warn(k.Line, "provider.resend_unkeyed: a second effect is possible if the provider takes longer than absent_after to show one")
	}
	if p.Unkeyed && p.KeyLifetime != 0 {
		r.failAt(k.Line, "provider.key_lifetime: the provider keeps no keys")
	}
	if !p.Unkeyed && p.ResendUnkeyed {
		r.failAt(k.Line, "provider.resend_unkeyed: the provider keeps keys")
	}
	if k.base.url.isSecret() {
		return
	}
	address := literalOf(k.base.url)
	if _, err := handlers.NewClient(handlers.ClientOptions{URL: address}); err != nil || address == "" {
		r.failAt(k.base.urlLine, "provider.url: %v", cmpErr(err))
	}
	if strings.Contains(address, "@") {
		r.warn(k.base.urlLine, "provider.url: it looks like a secret in the file: take it from ${env:NAME} or ${file:PATH}")
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("it is empty")
	}
	return err
}

// checkDescription lets the engine judge the kind.
func (r *reader) checkDescription(k *Kind) {
	def, err := k.Definition(Options{URL: "http://127.0.0.1"})
	if err != nil {
		r.failAt(k.Line, "%v", err)
		return
	}
	d, err := consumer.Describe(consumer.Config{}, def)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.failAt(k.Line, "%s", line)
		}
		return
	}
	timeout := k.base.timeout
	if timeout == 0 {
		timeout = handlers.DefaultTimeout
	}
	if timeout > d.Policy.Deadline {
		r.warn(k.Line, "provider.timeout: %s is more than the deadline of an attempt, %s, and is cut to it", timeout, d.Policy.Deadline)
	}
	if !d.Provider.Unkeyed && d.UsableKey < d.LongestDelay {
		r.warn(k.Line, "provider.key_lifetime: a resend may rest on a key for %s only, less than the longest pause between two attempts, %s",
			d.UsableKey, d.LongestDelay)
	}
	if lease := consumer.DefaultConfig().Lease; d.Policy.Lease == consumer.Strict && d.Policy.Deadline > lease {
		r.warn(k.Line, "policy.lease_policy: strict with a deadline of %s, longer than a lease (%s): what comes back after a heartbeat was missed is thrown away",
			d.Policy.Deadline, lease)
	}
}

func (r *reader) checkOrder(k *Kind) {
	if k.order == nil {
		return
	}
	if v := k.order.version; v != nil {
		if d, ok := k.members.of(v.path); ok && d.typ != typeInteger {
			r.failAt(k.Line, "order.version: %s is %s; an integer is wanted", d.name, d.typ)
		}
	}
}

// checkPrefixes lets the engine judge the kinds together.
func (r *reader) checkPrefixes(f *File) {
	for i, k := range f.Kinds {
		for _, other := range f.Kinds[:i] {
			a, b := k.provider.KeyPrefix, other.provider.KeyPrefix
			if k.base.url.masked() == other.base.url.masked() && a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
				r.kind = k.Name
				r.failAt(k.Line, "provider.key_prefix: %q and %q of %s: no prefix may begin another at one provider", a, b, other.Name)
			}
		}
	}
	r.kind = ""
}
