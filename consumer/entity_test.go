package consumer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// Texts of times, each later than the one before it.
var laterAndLater = []string{
	"0000-01-01T00:00:00Z", "2026-11-29T09:59:59.999999999999Z", "2026-11-29T12:00:00+02:00", "2026-11-29T10:00:00.0000000000000000000001Z",
	"2026-11-29T10:00:00.00000000001Z", "2026-11-29T05:30:00.09-04:30", "2026-11-29T10:00:00.1Z", "2026-11-29T10:00:00.10000000000000001Z",
	"2026-11-29T10:00:00.9Z", "2026-11-29T10:00:01Z", "9999-12-31T23:59:59.9Z",
}

func TestTimesSortAsTexts(t *testing.T) {
	t.Parallel()
	var got []string
	for _, text := range laterAndLater {
		v, err := Version{Time: text}.stored()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, v.Time)
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("not in order: %q", got)
	}
	for _, same := range []string{"2026-11-29T10:00:00.10Z", "2026-11-29T11:00:00.1000+01:00", "2026-11-29T10:00:00.1-00:00"} {
		if v, err := (Version{Time: same}).stored(); err != nil || v.Time != "2026-11-29T10:00:00.1" {
			t.Errorf("%s is kept as %q (%v)", same, v.Time, err)
		}
	}
}

func TestVersionsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "2026-11-29", "2026-11-29 10:00:00Z", "2026-11-29T10:00:00", "2026-11-29T10:00:00.Z", "2026-11-29T10:00:60Z",
		"2026-02-30T10:00:00Z", "2026-11-29T10:00:00,5Z", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00",
		"2026-11-29T10:00:00." + strings.Repeat("1", maxMoment) + "Z"} {
		if v, err := (Version{Number: ptr(int64(1)), Time: text}).stored(); err == nil || strings.Contains(err.Error(), "2026") {
			t.Errorf("%s is kept as %+v (%v)", text, v, err)
		}
	}
	if _, err := (Version{}).stored(); err == nil {
		t.Error("a version without any part")
	}
}

// A job that could never be put in order is refused before it is accepted, by the publisher and by a worker alike.
func TestEntitiesThatAreNone(t *testing.T) {
	t.Parallel()
	number := Version{Number: ptr(int64(7))}
	for name, entity := range map[string]func(payJob) (string, Version){
		"no version":         func(payJob) (string, Version) { return "c", Version{} },
		"a time that is not": func(payJob) (string, Version) { return "c", Version{Time: "yesterday"} },
		"too long":           func(payJob) (string, Version) { return strings.Repeat("c", maxEntity+1), number },
		"bad UTF-8":          func(payJob) (string, Version) { return "c\xff", number },
		"a NUL":              func(payJob) (string, Version) { return "c\x00", number },
		"panics":             func(payJob) (string, Version) { panic("no") },
	} {
		d := orderedBy(t, entity)
		_, err := d.read([]byte(plainJob), maxBody)
		var r *refusalError
		if !errors.As(err, &r) || r.reason != idemstore.BadKey || r.detail == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := orderedBy(t, func(payJob) (string, Version) { return "", Version{} })
	if _, err := d.read([]byte(plainJob), maxBody); err != nil {
		t.Errorf("a job without an entity: %v", err)
	}
	d = orderedBy(t, func(payJob) (string, Version) { return strings.Repeat("c", maxEntity), number })
	if e, err := d.entityOf(payJob{}); err != nil || len(e.ID) != maxEntity || *e.Version.Number != 7 {
		t.Errorf("the longest id: %+v (%v)", e, err)
	}
}

func orderedBy(t *testing.T, entity func(payJob) (string, Version)) *definition {
	t.Helper()
	kind := newPayProvider(t).kind()
	kind.Entity = entity
	d, err := kind.define()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDescribeSaysThatThereIsAnOrderGuard(t *testing.T) {
	t.Parallel()
	kind := newPayProvider(t).kind()
	for _, want := range either {
		kind.Entity = nil
		if want {
			kind.Entity = func(payJob) (string, Version) { return "", Version{} }
		}
		if d, err := Describe(Config{}, kind); err != nil || d.HasOrderGuard != want {
			t.Errorf("%+v (%v)", d, err)
		}
	}
}
