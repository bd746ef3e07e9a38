package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/settlemq/settle/internal/provider"
)

// Options say how labs are run.
type Options struct {
	Labs     []string // names, see Names
	Break    bool     // play the case in which the protection is not enough
	Language Language

	// DatabaseURL is a migrated database, in which the labs use task ids and a kind of their own; their rows stay there.
	// Empty: a server is started for this run, and removed afterwards.
	DatabaseURL string
	// Sabotage makes the provider break its promise in every lab, to see that the checks notice: "" or IgnoreKeys.
	Sabotage string

	Words io.Writer                   // the story as a person reads it
	Color bool                        // whether Words shows colors
	IDs   io.Writer                   // gets the task ids before anything happens; nil: they are in Words
	Pause func(context.Context) error // called after each step; nil: no pauses
	Logs  io.Writer                   // the workers' own logs; nil: nowhere
	// Done is called with each lab's result as soon as it is over. An error of it ends the run.
	Done func(Result) error
}

// IgnoreKeys is the sabotage under which the provider takes keys and does not look at them.
const IgnoreKeys = "ignore-keys"

// Result is what came of a lab. Its JSON form is part of the product's outside; its texts are in the language of the run.
type Result struct {
	Lab      string   `json:"lab"`
	OK       bool     `json:"ok"`
	Break    bool     `json:"break"` // the case in which the protection is not enough was played
	Kind     string   `json:"kind"`
	Tasks    []int64  `json:"tasks"` // task ids, as in the jobs' bodies
	Title    string   `json:"title"`
	About    string   `json:"about"`
	Steps    []Shown  `json:"steps"`
	Question string   `json:"question"`
	Answer   string   `json:"answer"`
	Limit    string   `json:"limit"`
	Broken   []string `json:"broken"` // the checks that do not hold, in English
	Seconds  float64  `json:"seconds"`
}

// Shown is one step, and what was seen after it.
type Shown struct {
	Step   string  `json:"step"`
	Text   string  `json:"text"`
	View   View    `json:"view"`
	Checks []Check `json:"checks"`
}

// Check is one thing that had to be true after a step.
type Check struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Names are all labs, in the order in which they are best read.
func Names() (names []string) {
	for _, s := range stories {
		names = append(names, s.name)
	}
	return names
}

// Summary is the title of a lab.
func Summary(name string, l Language) string { return l.words().say(name + ".title") }

// Hint says how labs are run.
func Hint(l Language) string { return l.words().say("hint") }

// PauseText asks for Enter.
func PauseText(l Language) string { return l.words().say("pause") }

// Run plays labs one after the other, on parts that it starts and stops. The error is about the run itself; whether a
// lab holds is in its result. Cancelling ctx stops everything, and Run returns when it is gone.
func Run(ctx context.Context, o Options) (err error) {
	s := &stage{options: o, words: o.Language.words()}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	p := printer{w: o.Words, color: o.Color, words: s.words}
	chosen := s.assign(o.Labs)
	p.opening(s, chosen)
	for _, a := range chosen {
		result, err := s.play(ctx, a, p)
		if err != nil {
			return fmt.Errorf("lab %s: %w", a.story.name, err)
		}
		if err := o.Done(result); err != nil {
			return err
		}
	}
	p.closing(chosen)
	return nil
}

// assigned is a story with the task ids that it may use.
type assigned struct {
	story story
	tasks []int64
}

// assign gives each lab ten task ids of its own. It uses the first ones; a story that has to be told again takes the next.
func (s *stage) assign(names []string) (out []assigned) {
	for _, story := range stories {
		if !slices.Contains(names, story.name) {
			continue
		}
		a := assigned{story: story}
		tasks := story.tasks
		if s.options.Break {
			tasks = story.breakTasks
		}
		for i := range max(tasks, 1) {
			a.tasks = append(a.tasks, s.base+int64(10*len(out)+i))
		}
		out = append(out, a)
	}
	return out
}

// play plays one lab on a JetStream and a provider of its own.
func (s *stage) play(ctx context.Context, a assigned, to printer) (r Result, err error) {
	began := time.Now()
	p := &play{stage: s, story: a.story, next: a.tasks[0]}
	defer func() { err = errors.Join(err, p.tearDown()) }()
	if err := p.setUp(ctx); err != nil {
		return r, err
	}
	r = p.introduction(a)
	to.introduction(r)
	for i, step := range p.steps() {
		shown, err := p.take(ctx, step, i+1, to)
		if err != nil {
			return r, err
		}
		r.add(shown)
		if len(r.Broken) > 0 {
			break // what follows would rest on something that is not so
		}
		if err := s.pause(ctx); err != nil {
			return r, err
		}
	}
	r.OK, r.Seconds = len(r.Broken) == 0, time.Since(began).Seconds()
	to.end(r)
	return r, nil
}

// steps are those of the story, or of its break.
func (p *play) steps() []step {
	if p.options.Break {
		return p.story.breaks
	}
	return p.story.steps
}

// text is what the story says under an id of its own.
func (p *play) text(id string) string {
	if p.options.Break {
		id = "break." + id
	}
	return p.words.say(p.story.name+"."+id, p.facts()...)
}

func (p *play) introduction(a assigned) Result {
	name := p.story.name
	return Result{Lab: name, Break: p.options.Break, Kind: p.kind, Tasks: a.tasks, Broken: []string{},
		Title: p.words.say(name + ".title"), About: p.text("about"),
		Question: p.words.say(name + ".question"), Answer: p.words.say(name + ".answer"), Limit: p.words.say(name + ".limit")}
}

// take makes a step: it says what happens, lets it happen, looks and checks.
func (p *play) take(ctx context.Context, x step, number int, to printer) (Shown, error) {
	out := Shown{Step: x.id, Text: p.text(x.id)}
	to.says(number, out.Text)
	err := x.does(ctx, p)
	var missing *neverSeen
	if err != nil && !errors.As(err, &missing) {
		return out, err
	}
	before := p.view
	if p.view, err = p.look(ctx); err != nil {
		return out, err
	}
	p.letGo() // what was held for the look goes on
	p.notes = nil
	out.View = p.view
	if missing != nil {
		out.Checks = append(out.Checks, Check{What: "waited", Want: missing.what, Got: "timeout"})
	}
	for _, c := range x.then {
		out.Checks = append(out.Checks, c(p, before))
	}
	to.shows(out)
	return out, nil
}

func (r *Result) add(s Shown) {
	r.Steps = append(r.Steps, s)
	for _, c := range s.Checks {
		if !c.OK {
			r.Broken = append(r.Broken, fmt.Sprintf("step %s: %s: expected %s, saw %s", s.Step, c.What, c.Want, c.Got))
		}
	}
}

// faults are what makes the provider misbehave in this run, beside what a story asks for.
func (o Options) faults() []provider.Fault {
	if o.Sabotage == IgnoreKeys {
		return []provider.Fault{{IgnoreKeys: true}}
	}
	return nil
}

func (s *stage) pause(ctx context.Context) error {
	if s.options.Pause == nil {
		return nil
	}
	return s.options.Pause(ctx)
}
