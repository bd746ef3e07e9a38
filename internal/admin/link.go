package admin

import (
	"errors"
	"net/url"
	"strings"
)

// The places in the templates of links.
const (
	idPlace    = "{id}"
	tracePlace = "{trace_id}"
)

// checkLink refuses a template that could lead elsewhere than a person expects. Empty is none.
func checkLink(template, place string) error {
	if template == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(template, place, "x"))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("must be an http or https URL")
	case strings.Count(template, place) != 1:
		return errors.New("must have " + place + " once")
	case !strings.Contains(afterHost(template), place):
		return errors.New("must have " + place + " behind the host")
	}
	return nil
}

// afterHost is what follows scheme and host.
func afterHost(template string) string {
	_, rest, _ := strings.Cut(template, "://")
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		return rest[at:]
	}
	return ""
}

// link puts an id into a template. What is there is escaped, so that it stays within its place.
func link(template, place, id string) string {
	if template == "" || id == "" {
		return ""
	}
	return strings.Replace(template, place, strings.ReplaceAll(url.QueryEscape(id), "+", "%20"), 1)
}
