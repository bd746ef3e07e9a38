package handlers

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// D-32
func TestRetryAfter(t *testing.T) {
	const date = "Sun, 29 Nov 2026 10:00:00 GMT"
	for value, want := range map[string]time.Duration{
		"":                                0,
		"0":                               0,
		"2":                               2 * time.Second,
		" 120 ":                           2 * time.Minute,
		"-5":                              0,
		"1.5":                             0,
		"+5":                              0,
		"soon":                            0,
		"9223372037":                      maxRetryAfter, // more nanoseconds than an int64 holds
		"9223372036854775807":             maxRetryAfter,
		"99999999999999999999999999":      maxRetryAfter,
		"Sun, 29 Nov 2026 10:00:30 GMT":   30 * time.Second,
		"Sunday, 29-Nov-26 10:00:30 GMT":  30 * time.Second,
		"Sun Nov 29 10:00:30 2026":        30 * time.Second,
		"Sun, 29 Nov 2026 09:59:59 GMT":   0,
		"Sun, 29 Nov 2999 10:00:00 GMT":   maxRetryAfter,
		"Sun, 29 Nov 2026 10:00:30 +0100": 0,
	} {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		if got := retryAfter(h); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := retryAfter(http.Header{}); got != 0 {
		t.Errorf("no header: %v", got)
	}
}

func TestRetryAfterWithoutDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock stands still at a whole second
		at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		if got := retryAfter(http.Header{"Retry-After": {at}}); got != time.Minute {
			t.Errorf("%v, want a minute from our own clock", got)
		}
	})
}
