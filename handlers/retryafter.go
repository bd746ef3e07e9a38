package handlers

import (
	"net/http"
	"strings"
	"time"
)

// maxRetryAfter stands for "longer than anybody would wait". The policy's own limit is far below it, and no sum
// with it overflows.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter is how long the provider asks to be left alone: whole seconds, or one of the three date forms, which
// is compared with the answer's own Date, because its clock need not be ours. What is broken, negative or over
// is 0: our own back-off decides.
func retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		return seconds(value)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		from = time.Now()
	}
	return min(max(at.Sub(from), 0), maxRetryAfter)
}

// seconds reads digits of any length.
func seconds(digits string) time.Duration {
	var d time.Duration
	for _, digit := range digits {
		d = d*10 + time.Duration(digit-'0')*time.Second
		if d >= maxRetryAfter {
			return maxRetryAfter
		}
	}
	return d
}
