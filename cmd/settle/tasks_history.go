package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// A provider that is asked for a day leaves hundreds of lines: of a long history the beginning and the end are printed.
const (
	historyHead = 20
	historyTail = 30
)

func printHistory(w io.Writer, events []idemstore.Event) error {
	if len(events) == 0 {
		_, err := fmt.Fprint(w, "\nNothing out of the ordinary happened.\n")
		return err
	}
	fmt.Fprint(w, "\nHistory\n")
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	lines := historyLines(events)
	if left := len(lines) - historyHead - historyTail; left > 1 {
		lines = slices.Replace(lines, historyHead, historyHead+left, fmt.Sprintf("…\t\t\t\t%d lines are left out; --json prints all\t\n", left))
	}
	for _, line := range lines {
		fmt.Fprint(table, line)
	}
	return table.Flush()
}

// historyLines are the lines of a history. What was said more than twice in a row is said by its first and its last line.
func historyLines(events []idemstore.Event) (lines []string) {
	add := func(e idemstore.Event, reason string) {
		lines = append(lines, fmt.Sprintf("%s\t%s\tattempt %d\t%s\t%s\t%s\n", clock(e.At), story.Printable(e.Actor), e.Attempt, change(e),
			story.Printable(reason), story.Printable(e.ExternalID)))
	}
	for len(events) > 0 {
		n := repeats(events)
		add(events[0], events[0].Reason)
		switch last := events[n-1]; {
		case n > 2:
			add(last, fmt.Sprintf("the same, %d times in all", n))
		case n == 2:
			add(last, last.Reason)
		}
		events = events[n:]
	}
	return lines
}

// repeats is how many events at the beginning say the same.
func repeats(events []idemstore.Event) int {
	first := events[0]
	for n, e := range events {
		e.At, e.Attempt, e.TraceID = first.At, first.Attempt, first.TraceID
		if e != first {
			return n
		}
	}
	return len(events)
}

func change(e idemstore.Event) string {
	if e.OldStatus == e.NewStatus || e.OldStatus == "" {
		return story.Status(e.NewStatus)
	}
	return story.Status(e.OldStatus) + " → " + story.Status(e.NewStatus)
}
