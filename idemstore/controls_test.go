package idemstore_test

import (
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// The latest control of a kind counts, a kind that is in the mode already stays as it is, and every change is kept.
func TestControls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, c := range []struct {
		kind, mode, reason string
		changed            bool
		counts             string // the reason of the control that counts then
	}{
		{"payment.charge", "running", "nobody paused it", false, ""},
		{"payment.charge", "paused", "outage", true, "outage"},
		{"payment.charge", "paused", "again", false, "outage"},
		{"payment.charge", "asking", "look only", true, "look only"},
		{"report.create", "paused", "other", true, "other"},
		{"payment.charge", "running", "over\x00", true, "over\uFFFD"},
		{"payment.charge", "running", "over twice", false, "over\uFFFD"},
	} {
		now, changed, err := b.SetControl(t.Context(), idemstore.Control{Kind: c.kind, Mode: idemstore.Mode(c.mode), Actor: "ann", Reason: c.reason})
		if err != nil {
			t.Fatal(err)
		}
		if changed != c.changed || now.Reason != c.counts || string(now.Mode) != c.mode || now.Kind != c.kind {
			t.Errorf("step %d: changed %v, now %+v", i, changed, now)
		}
		if c.counts != "" && (now.Actor != "ann" || now.At.IsZero()) {
			t.Errorf("step %d: %+v", i, now)
		}
	}
	if n := query[int](t, b.pool, `select count(*)::int from settle.controls`); n != 4 {
		t.Errorf("%d lines are kept", n)
	}
	for _, c := range []struct {
		kinds []string
		want  string
	}{
		{nil, "payment.charge running, report.create paused"},
		{[]string{"report.create", "contact.sync"}, "report.create paused"},
	} {
		found, err := b.Controls(t.Context(), c.kinds...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range found {
			got = append(got, x.Kind+" "+string(x.Mode))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("controls of %v: %v", c.kinds, got)
		}
	}
}

func TestKnowsKind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.performing(t, "one")
	for kind, want := range map[string]bool{b.task(t, b.performing(t, "two").TaskID).Kind: true, "no.such": false} {
		if got, err := b.KnowsKind(t.Context(), kind); got != want || err != nil {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
}
