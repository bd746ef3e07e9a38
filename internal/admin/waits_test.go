package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// Why does it wait? The page says what held it up, when it goes on, and what keeps its kind from going on.
func TestWhyATaskWaits(t *testing.T) {
	t.Parallel()
	const (
		idle  = `lease_until = null, sending = false, first_sent_at = null, next_attempt_at = clock_timestamp() + interval '59 minutes 59 seconds', `
		heard = `insert into settle.tallies (kind, minute, seen_at, breaker_at) values ('payment.charge', date_trunc('minute', clock_timestamp()),
			clock_timestamp() - $1::interval, clock_timestamp() - $2::interval)`
	)
	for name, c := range map[string]struct {
		set, seen, broke string
		paused           bool
		want             []string
		not              string
	}{
		"too many": {idle + `last_error = 'POST /charges: 429 Too Many Requests', error_class = 'not_sent'`, "1 second", "1 hour", false,
			[]string{"takes no more requests for now", "The next attempt comes by itself, in 59 min"}, "connection"},
		"not let in": {idle + `last_error = 'POST /charges: 503 Service Unavailable', error_class = 'not_sent'`, "1 second", "1 hour", false,
			[]string{"The provider let nothing in"}, "connection"},
		"no connection": {idle + `last_error = 'dial tcp: refused', error_class = 'not_sent'`, "1 second", "1 hour", false,
			[]string{"there was no connection to the provider"}, "let nothing in"},
		"breaker":   {idle + `last_error = ''`, "1 second", "1 second", false, []string{"its breaker is open"}, "No worker"},
		"no worker": {idle + `last_error = ''`, "10 minutes", "1 hour", false, []string{"has been heard of for 10 min"}, "breaker"},
		"never":     {idle + `last_error = ''`, "", "", false, []string{"No worker has served its kind"}, "breaker"},
		"paused": {idle + `last_error = ''`, "1 second", "1 hour", true,
			[]string{"Its kind is paused; nothing is taken, sent or asked (by ann, since ", "the bank is closed"}, "breaker"},
		"unknown": {strings.Replace(unknown, "'2026-11-30 11:00:00Z'", "clock_timestamp()", 1), "1 second", "1 hour", false, []string{"The provider is asked again by itself, and is due now."}, "comes by itself"},
		"asked": {strings.Replace(unknown, "'deadline', error_class = 'timeout'", "'GET /charges: 503 Service Unavailable', error_class = 'unknown'", 1), "1 second", "1 hour", false,
			[]string{"The provider was asked what became of it, and could not tell."}, "whether it was carried out"},
		"came back": {`lease_until = clock_timestamp() - interval '1 minute'`, "10 minutes", "1 hour", false, []string{"has been heard of for 10 min"}, "comes by itself"},
		"at work":   {``, "10 minutes", "1 hour", true, nil, "Why it waits"},
		"over":      {done, "10 minutes", "1 hour", true, nil, "Why it waits"},
		"a person":  {parked + `'age'`, "10 minutes", "1 hour", false, nil, "Why it waits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			task := d.add("order_1", c.set)
			if c.seen != "" {
				d.exec(heard, c.seen, c.broke)
			}
			if c.paused {
				if _, _, err := d.store.SetControl(t.Context(), idemstore.Control{Kind: charge, Mode: idemstore.ModePaused, Actor: "ann", Reason: "the bank is closed"}); err != nil {
					t.Fatal(err)
				}
			}
			page := textOf(t, d.page(fmt.Sprintf("/tasks/%d", task.TaskID)))
			for _, want := range c.want {
				if !strings.Contains(page, want) {
					t.Errorf("no %q in\n%s", want, page)
				}
			}
			if strings.Contains(page, c.not) {
				t.Errorf("%q in\n%s", c.not, page)
			}
		})
	}
}
