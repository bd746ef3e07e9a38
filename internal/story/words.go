package story

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/settlemq/settle/idemstore"
)

// Status is a status in the words that people use.
func Status(s idemstore.Status) string {
	switch s {
	case idemstore.Started:
		return "pending"
	case idemstore.Unknown:
		return "pending – being checked with the provider"
	case idemstore.Finished:
		return "done"
	case idemstore.Failed:
		return "failed"
	case idemstore.NeedsReview:
		return "needs review"
	}
	return Printable(string(s))
}

// Cause says why a person is asked; empty for a cause that this build does not know.
func Cause(c idemstore.Cause) string {
	switch c {
	case idemstore.CauseBudget:
		return "its attempts are used up and nobody could tell whether it happened"
	case idemstore.CauseAge:
		return "it was not settled within its age limit"
	case idemstore.CauseConflict:
		return "its data contradict ours, or a record is missing"
	case idemstore.CauseContradictory:
		return "the provider has other content for it, or two effects"
	case idemstore.CauseTwoEffects:
		return "the provider has given two ids for it, so there may be two effects"
	case idemstore.CauseNotBooked:
		return "it is done at the provider, and the local rows were refused"
	case idemstore.CauseRefusalUnbooked:
		return "the provider refused it, and the local rows that say so were refused"
	case idemstore.CauseSkipUnbooked:
		return "a newer event made it needless, it was not sent, and the local rows that say so were refused"
	case idemstore.CauseAbsent:
		return "the provider does not know it, and nothing permits sending it again"
	case idemstore.CauseVanished:
		return "the provider does not know an id any more that it once gave"
	case idemstore.CauseNoLookup:
		return "it may have happened, its kind has no way to ask, and no key protects a second request"
	case idemstore.CauseReplayedError:
		return "the provider answers every request with the same stored error"
	}
	return ""
}

// Printable replaces what could move a terminal's cursor or turn its text around. Keys and answers come from
// outside.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Grouped is a count with its thousands set apart: 10,000.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Ago is a past moment in the largest unit that fits.
func Ago(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= unit.length {
			return fmt.Sprintf("%d %s ago", d/unit.length, unit.name)
		}
	}
	return fmt.Sprintf("%d s ago", max(d, 0)/time.Second)
}

// units are those that a wait is told in.
var units = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}

// Wait is a wait of at least a second, in its two largest units.
func Wait(d time.Duration) (text string) {
	for i, u := range units {
		if d < u.length {
			continue
		}
		text = fmt.Sprintf("%d %s", d/u.length, u.name)
		if i+1 < len(units) && d%u.length >= units[i+1].length {
			text += fmt.Sprintf(" %d %s", d%u.length/units[i+1].length, units[i+1].name)
		}
		return text
	}
	return "a moment"
}

// Short writes a length of time without its zero parts: 24h, not 24h0m0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
