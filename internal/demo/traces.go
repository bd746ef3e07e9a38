package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// The two ways to ask Jaeger the same: its page, and its API.
const (
	searchPage = "/search?"
	searchAPI  = "/api/traces?"
)

// tracesOf is where Jaeger shows the spans of the first job whose worker was killed; empty without a Jaeger.
func (s *stage) tracesOf(jobs []job) string {
	if s.options.Jaeger == "" {
		return ""
	}
	for _, j := range jobs {
		if j.kill {
			tags, _ := json.Marshal(map[string]string{"settle.key": j.key}) // text cannot fail
			return s.options.Jaeger + searchPage + url.Values{"service": {"settle-worker"}, "tags": {string(tags)}, "lookback": {"1h"},
				"limit": {"20"}}.Encode()
		}
	}
	return ""
}

// printTraces says where to look. A worker that was killed has kept the spans that it had not sent.
func (r Report) printTraces(w io.Writer) {
	if r.Traces == "" {
		return
	}
	fmt.Fprintf(w, "\nA job whose worker was killed, in Jaeger (the spans that the worker had not sent are gone with it):\n")
	fmt.Fprintf(w, "  %s\n  %s  (as JSON)\n", r.Traces, strings.Replace(r.Traces, searchPage, searchAPI, 1))
}
