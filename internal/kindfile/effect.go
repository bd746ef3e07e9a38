package kindfile

// EffectIn is the id of the effect that an answer to the request tells of; empty if it tells of none.
func (k *Kind) EffectIn(status int, body []byte) string {
	said := reply{status: status, whole: true}
	if tree, err := decodeJSON(body); err == nil {
		said.body, said.isJSON = tree, true
	}
	rule, err := match(k.send.answers, said)
	if err != nil || rule == nil || rule.means != done && rule.means != accepted {
		return ""
	}
	d := declaredKind{Kind: k}
	r, err := d.effect(rule, said)
	if err != nil {
		return ""
	}
	return d.idOf(r)
}

// CanAsk reports whether the kind has a look-up.
func (k *Kind) CanAsk() bool { return k.lookUp != nil }
