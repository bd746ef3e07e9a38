package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// refusalObject is a refusal as --json prints it. Body and headers only where one is shown.
type refusalObject struct {
	Refusal     int64               `json:"refusal"`
	At          time.Time           `json:"at"`
	Kind        string              `json:"kind"`
	Key         string              `json:"key,omitempty"`
	Reason      string              `json:"reason"`
	Detail      string              `json:"detail,omitempty"`
	Task        int64               `json:"task,omitempty"` // that it conflicts with
	Subject     string              `json:"subject"`
	Stream      string              `json:"stream,omitempty"`
	Sequence    uint64              `json:"sequence,omitempty"`
	StoredAt    *time.Time          `json:"stored_at,omitempty"`
	Size        int                 `json:"size"` // of the whole body, in bytes
	Cut         bool                `json:"cut"`  // only the beginning of the body was kept
	Headers     map[string][]string `json:"headers,omitempty"`
	HeadersCut  bool                `json:"headers_cut,omitempty"` // they were too large to be kept
	Body        *string             `json:"body,omitempty"`
	BodyBase64  []byte              `json:"body_base64,omitempty"` // instead of body, where that is not UTF-8
	Republished *republishedObject  `json:"republished,omitempty"`
}

type republishedObject struct {
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	Sequence uint64    `json:"sequence"`
}

func refusalLine(r idemstore.KeptRefusal) refusalObject {
	o := refusalObject{Refusal: r.ID, At: r.At, Kind: r.Kind, Key: r.Key, Reason: string(r.Reason), Detail: r.Detail, Task: r.TaskID,
		Subject: r.Subject, Stream: r.Origin.Stream, Sequence: r.Origin.Sequence, Size: r.Size, Cut: r.Cut}
	if !r.Origin.Stored.IsZero() {
		o.StoredAt = &r.Origin.Stored
	}
	if p := r.Republished; p != nil {
		o.Republished = &republishedObject{p.At, p.Actor, p.Reason, p.Sequence}
	}
	return o
}

func refusalStory(r idemstore.KeptRefusal) refusalObject {
	o := refusalLine(r)
	o.Headers, o.HeadersCut = r.Headers, r.HeadersCut
	if utf8.Valid(r.Body) {
		body := string(r.Body)
		o.Body = &body
	} else {
		o.BodyBase64 = r.Body
	}
	return o
}

func printRefusal(w io.Writer, r idemstore.KeptRefusal) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, story.Printable(value))
		}
	}
	row("refusal", fmt.Sprint(r.ID))
	row("refused", clock(r.At))
	row("reason", string(r.Reason))
	row("detail", r.Detail)
	row("kind", r.Kind)
	row("key", r.Key)
	row("conflicts with", unlessZero(r.TaskID))
	row("subject", r.Subject)
	if r.Origin.Stream != "" {
		row("message", fmt.Sprintf("%d of %s, stored %s", r.Origin.Sequence, r.Origin.Stream, clock(r.Origin.Stored)))
	}
	if p := r.Republished; p != nil {
		row("republished", fmt.Sprintf("%s by %s, as message %d: %s", clock(p.At), p.Actor, p.Sequence, p.Reason))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			row("header "+name, value)
		}
	}
	if r.HeadersCut {
		row("headers", "too large to be kept")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nBody, %d bytes%s\n", r.Size, map[bool]string{true: fmt.Sprintf(", of which the first %d were kept", len(r.Body))}[r.Cut])
	_, err := fmt.Fprintln(w, bodyText(r.Body))
	return err
}

// bodyText is a body as a terminal may show it: text with its lines, anything else as a dump of its bytes. A body that was
// cut may end within a character.
func bodyText(body []byte) string {
	whole := body
	for n := 0; n < utf8.UTFMax && len(whole) > 0 && !utf8.Valid(whole); n++ {
		whole = whole[:len(whole)-1]
	}
	if !utf8.Valid(whole) || len(whole) == 0 {
		return strings.TrimSuffix(hex.Dump(body), "\n")
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, string(whole))
}
