package provider

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// faultHeader is the request header that holds a fault for the request it comes with.
const faultHeader = "Settle-Fault"

// headerFault returns the fault in the header; without the header it is the zero fault.
func headerFault(header http.Header) (Fault, error) {
	values := header.Values(faultHeader)
	if len(values) == 0 {
		return Fault{}, nil
	}
	fault, err := parseFault(strings.Join(values, ","))
	if err != nil {
		return Fault{}, fmt.Errorf("%s: %w", faultHeader, err)
	}
	return fault, nil
}

// parseFault reads `name, name=value, name="a value, quoted"`.
func parseFault(text string) (Fault, error) {
	items, err := splitItems(text)
	if err != nil {
		return Fault{}, err
	}
	var s setter
	for _, item := range items {
		name, value, found := strings.Cut(item, "=")
		if !found {
			value = "true"
		}
		value, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return Fault{}, err
		}
		if err := s.set(strings.TrimSpace(name), value, !found); err != nil {
			return Fault{}, err
		}
	}
	if s.fault.forRules() {
		return Fault{}, errors.New("key, method, path and count are for PUT /faults; a header is for its own request")
	}
	return s.fault, s.fault.check()
}

// splitItems splits at commas that are outside quotes.
func splitItems(text string) ([]string, error) {
	var items []string
	quoted, escaped, from := false, false, 0
	for i := range len(text) {
		switch c := text[i]; {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			items, from = append(items, text[from:i]), i+1
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	return append(items, text[from:]), nil
}

// unquote undoes the quoted form of a header value: a backslash stands before a quote or another backslash.
func unquote(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	inner, ok := strings.CutSuffix(value[1:], `"`)
	if !ok {
		return "", errors.New("a quote ends before its value does")
	}
	var text strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' && i+1 < len(inner) {
			i++
		}
		text.WriteByte(inner[i])
	}
	return text.String(), nil
}
