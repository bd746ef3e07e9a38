package lab

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printer writes labs for a person.
type printer struct {
	w     io.Writer
	color bool
	words words
}

const (
	width  = 110 // characters in a line
	indent = "   "
	column = 13 // characters of a name in front of what is seen
)

// opening says whose ids are used and how to read what follows.
func (p printer) opening(s *stage, chosen []assigned) {
	var ids []string
	for _, a := range chosen {
		for _, id := range a.tasks {
			ids = append(ids, fmt.Sprint(id))
		}
	}
	tasks := p.words.say("opening.tasks", "tasks", strings.Join(ids, ", "), "kind", s.kind)
	p.line("", tasks)
	if s.options.IDs != nil {
		fmt.Fprintln(s.options.IDs, tasks)
	}
	if s.options.DatabaseURL != "" {
		p.line("", p.words.say("opening.shared"))
	} else if s.options.Pause != nil {
		p.line("", p.words.say("opening.look"))
		fmt.Fprintf(p.w, "  export DATABASE_URL='%s'\n  settle tasks list\n", s.databaseURL)
	}
	fmt.Fprintln(p.w)
	for _, id := range []string{"workers", "row", "provider", "message", "checked"} {
		p.named(p.words.say("label."+id), p.words.say("opening."+id))
	}
}

func (p printer) introduction(r Result) {
	fmt.Fprintf(p.w, "\n%s\n", p.paint(bold, strings.ToUpper(r.Lab)+" · "+r.Title))
	if r.Break {
		p.line("", p.words.say("opening.break"))
	}
	p.line("", r.About)
}

func (p printer) says(number int, text string) {
	fmt.Fprintln(p.w)
	p.line(fmt.Sprintf("%d. ", number), text)
}

// shows writes what each side believes after a step, and what was checked.
func (p printer) shows(s Shown) {
	for _, note := range s.View.Notes {
		p.line(indent, note)
	}
	for _, w := range s.View.Workers {
		p.named(p.words.say("label.worker", "name", w.Name), w.Knows)
	}
	if s.View.Task != nil || s.View.Message != nil { // else the lab has no task
		p.parts(p.words.say("label.row"), "  ", p.row(s.View.Task)...)
	}
	p.parts(p.words.say("label.provider"), "  ", p.provider(s.View.Provider)...)
	if m := s.View.Message; m != nil {
		p.named(p.words.say("label.message"), p.words.say("view.message", "n", fmt.Sprint(m.InStream), "deliveries", fmt.Sprint(m.Deliveries)))
	}
	for i, line := range s.View.Person {
		p.named(map[bool]string{true: p.words.say("label.person")}[i == 0], line)
	}
	p.checks(s.Checks)
}

// row is the task's row, column by column.
func (p printer) row(t *TaskView) []string {
	if t == nil {
		return []string{p.words.say("view.no_row")}
	}
	lease := p.words.value(none)
	switch t.Lease {
	case live:
		lease = p.words.say("view.lease_live", "seconds", seconds(t.LeaseRest))
	case expired:
		lease = p.words.say("view.lease_expired", "seconds", seconds(-t.LeaseRest))
	}
	parts := []string{"status=" + t.Status, fmt.Sprintf("attempts=%d", t.Attempts), "lease=" + lease,
		"external_id=" + p.words.value(orNone(t.ExternalID)), "unsure=" + p.words.value(yesNo(t.Unsure))}
	if t.Duplicates > 0 {
		parts = append(parts, fmt.Sprintf("duplicates=%d", t.Duplicates))
	}
	if t.Cause != "" {
		parts = append(parts, "cause="+t.Cause)
	}
	if t.LastError != "" {
		parts = append(parts, fmt.Sprintf("last_error=%q", t.LastError))
	}
	return parts
}

// seconds are shown with one digit, as long as that matters.
func seconds(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// provider is what the provider has.
func (p printer) provider(v ProviderView) []string {
	parts := []string{p.words.say("view.requests", "n", fmt.Sprint(v.Requests), "answers", p.statuses(v.Answers))}
	if len(v.Lookups) > 0 {
		parts = append(parts, p.words.say("view.lookups", "n", fmt.Sprint(len(v.Lookups)), "answers", p.statuses(v.Lookups)))
	}
	return append(append(parts, p.words.say("view.reports", "n", fmt.Sprint(len(v.Reports)))), v.Reports...)
}

func (p printer) statuses(codes []int) string {
	if len(codes) == 0 {
		return p.words.value(none)
	}
	var texts []string
	for _, c := range codes {
		if c == 0 {
			texts = append(texts, p.words.say("view.cut"))
			continue
		}
		texts = append(texts, fmt.Sprint(c))
	}
	return strings.Join(texts, ", ")
}

// checks are in one line as far as they hold, then one by one.
func (p printer) checks(all []Check) {
	var held []string
	for _, c := range all {
		if c.OK {
			held = append(held, p.paint(green, "✓ ")+p.words.say("check."+c.What)+": "+p.words.value(c.Want))
		}
	}
	if len(held) > 0 {
		p.parts(p.words.say("label.checked"), "  ", held...)
	}
	for _, c := range all {
		if !c.OK {
			p.named(p.words.say("label.checked"), p.paint(red, "✗ ")+p.words.say("check.wrong", "what", p.words.say("check."+c.What),
				"want", p.words.value(c.Want), "got", p.words.value(c.Got)))
		}
	}
}

// end is the question, its answer, the limit, and whether the lab holds.
func (p printer) end(r Result) {
	fmt.Fprintln(p.w)
	if r.OK && !r.Break {
		p.named(p.words.say("label.question"), r.Question)
		p.named(p.words.say("label.answer"), r.Answer)
		p.named(p.words.say("label.limit"), p.words.say("end.limit", "limit", r.Limit, "lab", r.Lab))
	}
	if r.OK && r.Break {
		p.named(p.words.say("label.limit"), r.Limit)
	}
	color, verdict := green, "end.holds"
	switch {
	case !r.OK:
		color, verdict = red, "end.wrong"
	case r.Break:
		verdict = "end.broke"
	}
	p.line(indent, p.paint(color, p.words.say(verdict, "lab", r.Lab, "seconds", seconds(r.Seconds))))
}

// closing says, after all labs, what the guarantee rests on.
func (p printer) closing(chosen []assigned) {
	if len(chosen) < len(stories) {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", p.paint(bold, p.words.say("closing.title")))
	for _, id := range []string{"promise", "ask", "lease"} {
		p.line("", p.words.say("closing."+id))
	}
}

// named writes a text behind a name, wrapped.
func (p printer) named(name, text string) { p.parts(name, " ", strings.Split(text, " ")...) }

// parts is named for a text that may only be broken between its parts.
func (p printer) parts(name, between string, parts ...string) {
	gap := max(column-utf8.RuneCountInString(name), 1)
	p.wrap(indent+p.paint(dim, name)+strings.Repeat(" ", gap), len(indent)+column, between, parts)
}

// line writes a text behind a prefix, wrapped.
func (p printer) line(prefix, text string) {
	p.wrap(prefix, utf8.RuneCountInString(prefix), " ", strings.Split(text, " "))
}

// wrap puts as many parts into a line as it holds. Further lines are as far in as the first one.
func (p printer) wrap(prefix string, in int, between string, parts []string) {
	at := in
	fmt.Fprint(p.w, prefix)
	for i, part := range parts {
		n := visible(part)
		switch {
		case i == 0:
		case at+len(between)+n > width:
			fmt.Fprint(p.w, "\n"+strings.Repeat(" ", in))
			at = in
		default:
			fmt.Fprint(p.w, between)
			at += len(between)
		}
		fmt.Fprint(p.w, part)
		at += n
	}
	fmt.Fprintln(p.w)
}

// visible is how many characters of a word take room: a color takes none.
func visible(word string) int {
	return utf8.RuneCountInString(escape.ReplaceAllString(word, ""))
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}
