package handlers

import (
	"cmp"
	"errors"
	"regexp"
	"strings"
	"time"
)

// edition says which of two events about the same thing is the newer one. At least one part is there.
type edition struct {
	version *int64
	moment  *moment
}

// compare is negative if e is older than o, and false if nothing can tell. A version counts more than a time, for
// clocks are set.
func (e edition) compare(o edition) (int, bool) {
	switch {
	case e.version != nil && o.version != nil:
		return cmp.Compare(*e.version, *o.version), true
	case e.moment != nil && o.moment != nil:
		return e.moment.compare(*o.moment), true
	}
	return 0, false
}

// moment is a time in full: the digits after the second may be more than any clock type holds.
type moment struct {
	Second   int64  // since 1970
	Fraction string // digits after the point, without zeros at the end
}

const maxMoment = 128 // bytes of a text

var momentSyntax = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$`)

var errNoMoment = errors.New("updated_at: not a time of RFC 3339, or too long")

// parseMoment reads a time of RFC 3339. The error does not quote it.
func parseMoment(text string) (*moment, error) {
	parts := momentSyntax.FindStringSubmatch(text)
	if parts == nil || len(text) > maxMoment {
		return nil, errNoMoment
	}
	t, err := time.Parse(time.RFC3339, parts[1]+parts[3])
	if err != nil {
		return nil, errNoMoment
	}
	return &moment{t.Unix(), strings.TrimRight(parts[2], "0")}, nil
}

func (m moment) compare(o moment) int {
	return cmp.Or(cmp.Compare(m.Second, o.Second), strings.Compare(m.Fraction, o.Fraction))
}

// time is the moment cut to what a timestamptz holds.
func (m *moment) time() *time.Time {
	if m == nil {
		return nil
	}
	microseconds := int64(0)
	for i := range 6 {
		microseconds *= 10
		if i < len(m.Fraction) {
			microseconds += int64(m.Fraction[i] - '0')
		}
	}
	t := time.Unix(m.Second, microseconds*1000).UTC()
	return &t
}
