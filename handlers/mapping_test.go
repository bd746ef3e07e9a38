package handlers

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
)

// What every answer to a POST comes to: status, body and what the provider means by 409 or 422; then the outcome, and
// what is known of the effect. The first line that fits.
const mappingTable = `
200,201         whole,bare,marked                              -           | done           id
200,201         pending                                        -           | accepted       id
200,201         declined                                       -           | refused        refused+id
200,201         -                                              -           | unknown        nothing
202             whole,bare,marked,pending,declined,odd         -           | accepted       id
202             -                                              -           | unknown        nothing
400,402         whole,bare,marked,pending,declined,odd,cut,huge -          | refused        refused+id
400,402         -                                              -           | refused        refused
409,422         -                                              conflict    | conflict       nothing
409,422         -                                              in-progress | in-progress    nothing
409,422         whole,bare,marked,pending,declined,odd,cut,huge exists     | unknown        id
409,422         -                                              exists      | unknown        nothing
409,422         whole,bare,marked,pending,declined,odd,cut,huge refused    | refused        refused+id
409,422         -                                              refused     | refused        refused
409,422         other-content                                  by-body     | conflict       nothing
409,422         busy                                           by-body     | in-progress    nothing
422             whole,bare,marked,pending,declined,odd,cut,huge by-body    | refused        refused+id
422             -                                              by-body     | refused        refused
409             -                                              by-body     | unknown        nothing
401,403,404,405 -                                              -           | misconfigured  nothing
300-399         -                                              -           | misconfigured  nothing
429             -                                              -           | not-sent       nothing
400-599         marked                                         -           | replayed-error nothing
100-599         -                                              -           | unknown        nothing
`

// bodies are the classes of bodies.
var bodies = map[string]answer{
	"whole":         {body: []byte(`{"charge_id":"ch_1","status":"succeeded","replayed":false}`)},
	"bare":          {body: []byte(`{"charge_id":"ch_1"}`)},
	"pending":       {body: []byte(`{"charge_id":"ch_1","status":"pending"}`)},
	"declined":      {body: []byte(`{"charge_id":"ch_1","status":"declined","code":"card_declined"}`)},
	"odd":           {body: []byte(`{"charge_id":"ch_1","status":"odd"}`)},
	"marked":        {body: []byte(`{"charge_id":"ch_1","status":"succeeded","replayed":true}`)},
	"no-status":     {body: []byte(`{"charge_id":"ch_1","status":7,"charge_id":""}`)},
	"no-id":         {body: []byte(`{"status":"succeeded"}`)},
	"blank":         {body: []byte(`{}`)},
	"other-content": {body: []byte(`{"error":"idempotency_conflict"}`)},
	"busy":          {body: []byte(`{"error":"request_in_progress"}`)},
	"words":         {body: []byte(`{"error":"already_processed"}`)},
	"page":          {body: []byte(`<html>`)},
	"empty":         {},
	"cut":           {body: []byte(`{"charge_id":"ch_1","status":"succeeded"}`), broken: io.ErrUnexpectedEOF},
	"huge":          {body: []byte(`{"charge_id":"ch_1","status":"succeeded"}`), broken: errTooLarge},
}

var meanings = map[string]consumer.Meaning{"by-body": consumer.MeansByBody, "refused": consumer.MeansRefused,
	"conflict": consumer.MeansConflict, "in-progress": consumer.MeansInProgress, "exists": consumer.MeansExists}

type mappingLine struct {
	text                    string
	statuses, bodies, means []string
	outcome, effect         string
	used                    bool
}

func mappingLines(t *testing.T) (lines []*mappingLine) {
	t.Helper()
	for text := range strings.Lines(strings.TrimSpace(mappingTable)) {
		f := strings.Fields(text)
		if len(f) != 6 {
			t.Fatalf("%d words: %s", len(f), text)
		}
		lines = append(lines, &mappingLine{text: text, statuses: strings.Split(f[0], ","), bodies: strings.Split(f[1], ","),
			means: strings.Split(f[2], ","), outcome: f[4], effect: f[5]})
	}
	return lines
}

func (l *mappingLine) fits(status int, body, means string) bool {
	is := func(cell []string, word string) bool { return cell[0] == "-" || slices.Contains(cell, word) }
	return is(l.bodies, body) && is(l.means, means) && slices.ContainsFunc(l.statuses, func(s string) bool {
		low, high, isRange := strings.Cut(s, "-")
		if !isRange {
			high = low
		}
		from, _ := strconv.Atoi(low)
		to, _ := strconv.Atoi(high)
		return status >= from && status <= to
	})
}

// Every status from 100 to 599 with every class of body, and both conflicts with every meaning.
func TestAnswerMapping(t *testing.T) {
	t.Parallel()
	lines := mappingLines(t)
	for status := 100; status <= 599; status++ {
		for body, a := range bodies {
			for means, m := range meanings {
				a.status, a.call = status, "POST /charges"
				line := slices.IndexFunc(lines, func(l *mappingLine) bool { return l.fits(status, body, means) })
				if line < 0 {
					t.Fatalf("%d with body %s where it means %s fits no line", status, body, means)
				}
				l := lines[line]
				l.used = true
				p := consumer.Provider{Status409: m, Status422: m}
				if got := mapped(a, p); got != l.outcome+" "+l.effect {
					t.Errorf("%d with body %s where it means %s: %s, want %s", status, body, means, got, l.text)
				}
			}
		}
	}
	for _, l := range lines {
		if !l.used {
			t.Errorf("no answer comes to the line %s", l.text)
		}
	}
}

// mapped is outcome and effect in words.
func mapped(a answer, p consumer.Provider) string {
	e, err := charges.performed(a, p, time.Second)
	class, _ := outcomeOf(err)
	what := "nothing"
	switch {
	case e.id == "ch_1" && e.status == charges.refused:
		what = "refused+id"
	case e.id == "ch_1":
		what = "id"
	case e.status == charges.refused:
		what = "refused"
	case e != (effect{}):
		what = fmt.Sprintf("%+v", e)
	}
	return strings.ReplaceAll(class, " ", "-") + " " + what
}

// The two statuses have meanings of their own.
func TestMeaningsAreApart(t *testing.T) {
	t.Parallel()
	p := consumer.Provider{Status409: consumer.MeansExists, Status422: consumer.MeansConflict}
	for status, want := range map[int]string{409: "unknown id", 422: "conflict nothing", 400: "refused refused+id"} {
		a := bodies["bare"]
		a.status = status
		if got := mapped(a, p); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}
