package kindfile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/settlemq/settle/handlers"
)

const maxSecret = 64 << 10 // bytes of a file

// client makes the client of the kind. Where the URL cannot be resolved yet it has none.
func (k *Kind) client(o Options) (*handlers.Client, error) {
	address := o.URL
	if address == "" {
		var err error
		if address, err = k.resolve(k.base.url); err != nil {
			address = "" // File.Ready says so
		}
	}
	c := handlers.ClientOptions{URL: address, Timeout: k.base.timeout, Base: o.Base}
	if len(k.base.headers) > 0 {
		c.Authorize = func(_ context.Context, req *http.Request) error { return k.authorize(req.Header) }
	}
	api, err := handlers.NewClient(c)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", k.Name, err)
	}
	return api, nil
}

// authorize adds the headers of provider.headers. Files are read for each call, so that a token may be replaced while
// workers run.
func (k *Kind) authorize(header http.Header) error {
	for _, h := range k.base.headers {
		value, err := k.resolve(h.text)
		if err == nil {
			err = checkHeader(value)
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", h.name, err)
		}
		header.Set(h.name, value)
	}
	return nil
}

// resolve fills in variables and files. Errors name them, and never show what they hold.
func (k *Kind) resolve(t text) (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.ref == nil {
			b.WriteString(p.literal)
			continue
		}
		value, err := k.secret(p.ref)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

func (k *Kind) secret(r *ref) (string, error) {
	if r.source == fromVariable {
		value := os.Getenv(r.name)
		if value == "" {
			return "", fmt.Errorf("variable %s is not set", r.name)
		}
		return value, nil
	}
	name := r.name
	if !filepath.IsAbs(name) {
		name = filepath.Join(k.folder, name)
	}
	text, err := readSecret(name)
	if err != nil {
		return "", fmt.Errorf("file %s: %w", r.name, err)
	}
	return text, nil
}

func readSecret(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return "", errors.Unwrap(err) // without the path, which the caller names as the kinds file does
	case !info.Mode().IsRegular() || info.Size() > maxSecret:
		return "", fmt.Errorf("not a file of at most %d bytes", maxSecret)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", errors.Unwrap(err)
	}
	text := strings.TrimRight(string(raw), "\r\n")
	if text == "" || strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("empty, or with control characters")
	}
	return text, nil
}

// Ready tells which variables and files are missing before a worker starts: an *InvalidError that names them, and shows
// nothing of what is in the others.
func (f *File) Ready() error {
	var problems []Problem
	for _, k := range f.Kinds {
		address, err := k.resolve(k.base.url)
		if err == nil {
			_, err = handlers.NewClient(handlers.ClientOptions{URL: address})
		}
		if err != nil {
			problems = append(problems, Problem{Line: k.base.urlLine, Kind: k.Name, Text: "provider.url: " + err.Error()})
		}
		if err := k.authorize(http.Header{}); err != nil {
			problems = append(problems, Problem{Line: k.base.urlLine, Kind: k.Name, Text: "provider.headers: " + err.Error()})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	sortProblems(problems)
	return &InvalidError{Path: f.Path, Problems: problems}
}
