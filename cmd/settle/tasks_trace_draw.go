package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

const (
	traceWidth = 100         // columns
	traceRail  = 15          // columns before the rail
	longWait   = time.Minute // that is written in words
)

// drawing is a time line on its way to a terminal.
type drawing struct {
	strings.Builder

	last    story.Moment
	attempt int // of the heading that was drawn last
}

// drawTimeline draws moments from top to bottom: their times, and behind a rail what they are.
func drawTimeline(w io.Writer, t idemstore.Task, line []story.Moment) error {
	d := &drawing{}
	fmt.Fprintf(d, "%s\n\n", strings.Join(wrapped(summary(t), traceWidth), "\n"))
	for i, m := range line {
		if left := len(line) - historyHead - historyTail; left > 1 && i >= historyHead && i < historyHead+left {
			if i == historyHead {
				d.rail("┊", fmt.Sprintf("… %s moments are left out; --json has all", story.Grouped(left)))
			}
			d.last = m
			continue
		}
		d.moment(m)
	}
	for _, more := range epilogue(t) {
		d.rail("┊", more)
	}
	_, err := io.WriteString(w, d.String())
	return err
}

// epilogue is what goes on, or came after the end.
func epilogue(t idemstore.Task) (lines []string) {
	switch {
	case t.Status == idemstore.Started && t.LeaseLive:
		lines = append(lines, fmt.Sprintf("attempt %d is at work, until %s unless it renews its lease", t.Attempt, clockOf(t.LeaseUntil)))
	case t.Status == idemstore.Started && t.LeaseUntil != nil:
		lines = append(lines, fmt.Sprintf("attempt %d has not come back; its lease ran out at %s", t.Attempt, clockOf(t.LeaseUntil)))
	case t.Status == idemstore.Started, t.Status == idemstore.Unknown:
		lines = append(lines, "goes on not before "+clock(t.NextAttemptAt))
	case t.Status == idemstore.NeedsReview:
		lines = append(lines, "a person decides: settle tasks show "+fmt.Sprint(t.TaskID))
	}
	switch {
	case t.Duplicates == 1:
		lines = append(lines, "1 repeat of the message was answered from the row")
	case t.Duplicates > 1:
		lines = append(lines, story.Grouped(t.Duplicates)+" repeats of the message were answered from the row")
	}
	return lines
}

// moment draws one, below what lies between it and the one before.
func (d *drawing) moment(m story.Moment) {
	d.between(m)
	if m.Attempt != 0 && m.Attempt != d.attempt {
		d.heading(m)
	}
	times := ""
	if m.Times > 1 {
		times = fmt.Sprintf(" (%d times more)", m.Times)
	}
	mark, lines := markOf(m), wrapped(story.Printable(inWords(m))+times, traceWidth-traceRail-4)
	fmt.Fprintf(d, "  %s %s %s\n", m.At.UTC().Format("15:04:05.000"), mark, lines[0])
	for _, more := range lines[1:] {
		d.rail("│", "  "+more)
	}
	d.last = m
}

// between says how long nothing happened, which takes one line however long it was, and that the day changes.
func (d *drawing) between(m story.Moment) {
	first, date, wait := d.last.At.IsZero(), "", ""
	if m.At.UTC().Format(time.DateOnly) != d.last.At.UTC().Format(time.DateOnly) {
		date = m.At.UTC().Format(time.DateOnly)
	}
	if passed := m.At.Sub(d.last.At); !first && passed >= longWait {
		wait = " " + story.Wait(passed)
	}
	switch rail := "┊"; {
	case first:
		fmt.Fprintf(d, "  %s\n", date)
	case date != "" || wait != "":
		fmt.Fprintf(d, "  %-*s%s%s\n", traceRail-2, date, rail, wait)
	case m.Attempt != 0 && m.Attempt != d.attempt:
		d.rail("│", "")
	}
}

// heading names an attempt, and who began it.
func (d *drawing) heading(m story.Moment) {
	d.attempt = m.Attempt
	text := fmt.Sprintf("attempt %d", m.Attempt)
	if m.Actor != "" && m.Actor != story.Worker {
		text += ", by " + story.Printable(m.Actor)
	}
	if m.TraceID != "" {
		text += ", trace " + story.Printable(m.TraceID)
	}
	d.rail("├", "─ "+text)
}

// rail draws a line without a time.
func (d *drawing) rail(mark, text string) {
	if text = strings.TrimRight(text, " "); text != "" && mark != "├" {
		text = " " + text
	}
	fmt.Fprintf(d, "%s%s%s\n", strings.Repeat(" ", traceRail), mark, text)
}

// markOf is the sign of a moment on the rail.
func markOf(m story.Moment) string {
	switch idemstore.Status(m.Status) {
	case idemstore.Finished:
		return "✓"
	case idemstore.Failed, idemstore.NeedsReview:
		return "✗"
	case idemstore.Unknown:
		return "?"
	case idemstore.Started:
	}
	switch m.What {
	case story.Stored:
		return "●"
	case story.Acted:
		return "◆"
	case story.Refused:
		return "✗"
	}
	return "○"
}

// inWords says what a moment is, what it led to, and what the broker is told.
func inWords(m story.Moment) string {
	text := m.Text
	if m.What == story.Acted {
		text = m.Actor + ": " + text
	}
	if m.Status != "" {
		text += " → " + strings.TrimPrefix(story.Status(idemstore.Status(m.Status)), "pending – ")
	}
	if m.ExternalID != "" {
		text += " as " + m.ExternalID
	}
	switch m.Settle {
	case "ack":
		text += "; then the message is acked"
	case "nak":
		text += "; then the message is handed back"
	case "term":
		text += "; then the message is ended"
	}
	return text
}

// wrapped breaks a text between words into lines of so many columns; a longer word has a line of its own, cut to fit.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		for len([]rune(word)) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, string([]rune(word)[:width])), string([]rune(word)[width:])
		}
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
