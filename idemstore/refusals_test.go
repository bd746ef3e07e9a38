package idemstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.performing(t, "order_1").TaskID
	for i, change := range []func(*idemstore.Refusal){
		func(r *idemstore.Refusal) { r.Body = []byte("{\x00") },
		func(r *idemstore.Refusal) { r.Kind, r.Reason, r.TaskID = "other.kind", idemstore.Conflict, task },
		func(r *idemstore.Refusal) {
			r.Reason, r.Body = idemstore.TooLarge, []byte(strings.Repeat("x", 64<<10+1))
		},
		func(r *idemstore.Refusal) {
			r.Origin, r.Headers = idemstore.Origin{}, map[string][]string{"A": {strings.Repeat("x", 9000)}}
		},
	} {
		r := refusalOf("{")
		r.Origin.Sequence = uint64(i + 1)
		change(&r)
		if err := b.Refuse(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	b.exec(t, `update settle.refusals set at = at - interval '1 day' where id <= 2`)
	for _, c := range []struct {
		filter idemstore.RefusalFilter
		want   string
	}{
		{idemstore.RefusalFilter{}, "4 3 2 1"},
		{idemstore.RefusalFilter{Limit: 2}, "4 3"},
		{idemstore.RefusalFilter{Limit: 2, Before: 3}, "2 1"},
		{idemstore.RefusalFilter{Kind: "other.kind"}, "2"},
		{idemstore.RefusalFilter{Reason: idemstore.TooLarge}, "3"},
		{idemstore.RefusalFilter{Since: time.Now().Add(-time.Hour)}, "4 3"},
		{idemstore.RefusalFilter{Kind: "none"}, ""},
	} {
		found, err := b.Refusals(t.Context(), c.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range found {
			ids = append(ids, fmt.Sprint(r.ID))
			if len(r.Body) > 0 {
				t.Errorf("refusal %d is listed with its body", r.ID)
			}
		}
		if strings.Join(ids, " ") != c.want {
			t.Errorf("%+v lists %v, want %s", c.filter, ids, c.want)
		}
	}

	first, err := b.FindRefusal(t.Context(), 1)
	want := refusalOf("{")
	if err != nil || string(first.Body) != "{\x00" || first.Size != 2 || first.Cut || first.HeadersCut || first.Kind != kind || first.Key != "order_1" ||
		first.Reason != idemstore.Malformed || first.Detail != want.Detail || first.Subject != want.Subject || first.Origin.Sequence != 1 ||
		!first.Origin.Stored.Equal(want.Origin.Stored.Truncate(time.Microsecond)) || fmt.Sprint(first.Headers) != fmt.Sprint(want.Headers) || first.Republished != nil {
		t.Errorf("found %+v (%v)", first, err)
	}
	if second, err := b.FindRefusal(t.Context(), 2); err != nil || second.TaskID != task || second.Reason != idemstore.Conflict {
		t.Errorf("found %+v (%v)", second, err)
	}
	if third, err := b.FindRefusal(t.Context(), 3); err != nil || !third.Cut || third.Size != 64<<10+1 || len(third.Body) != 64<<10 {
		t.Errorf("found %d of %d bytes, cut %v (%v)", len(third.Body), third.Size, third.Cut, err)
	}
	if fourth, err := b.FindRefusal(t.Context(), 4); err != nil || !fourth.HeadersCut || fourth.Headers != nil || !fourth.Origin.Stored.IsZero() {
		t.Errorf("found %+v (%v)", fourth, err)
	}
	if _, err := b.FindRefusal(t.Context(), 5); !errors.Is(err, idemstore.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

// The first republish is the one that is noted.
func TestMarkRepublished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.Refuse(t.Context(), refusalOf("{")); err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []uint64{17, 18} {
		if err := b.MarkRepublished(t.Context(), 1, sequence, by(fmt.Sprint("because ", sequence))); err != nil {
			t.Fatal(err)
		}
	}
	r, err := b.FindRefusal(t.Context(), 1)
	if err != nil || r.Republished == nil || r.Republished.Sequence != 17 || r.Republished.Actor != "anna" || r.Republished.Reason != "because 17" ||
		!near(&r.Republished.At, time.Now()) {
		t.Errorf("%+v (%v)", r.Republished, err)
	}
}
