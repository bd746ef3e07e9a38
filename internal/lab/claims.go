package lab

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/settlemq/settle/idemstore"
)

// claims are what must be true after a step.
type claims []claim

// claim compares what is seen now, in play.view, with what must be; before is what was seen after the step before.
type claim func(p *play, before View) Check

// compare makes a check; the same text means that it holds.
func compare(what string, want, got any) Check {
	w, g := fmt.Sprint(want), fmt.Sprint(got)
	return Check{What: what, Want: w, Got: g, OK: w == g}
}

// of is a claim about what is seen now.
func of(what string, want any, got func(View) any) claim {
	return func(p *play, _ View) Check { return compare(what, want, got(p.view)) }
}

// ofRow is a claim about the task's row.
func ofRow(what string, want any, got func(*TaskView) any) claim {
	return of(what, want, func(v View) any {
		if v.Task == nil {
			return noRow
		}
		return got(v.Task)
	})
}

// Words that stand for a value.
const (
	noRow     = "no row"
	refused   = "refused"
	saved     = "saved"
	unchanged = "unchanged"
)

func status(s string) claim { return ofRow("status", s, func(t *TaskView) any { return t.Status }) }
func attempts(n int) claim  { return ofRow("attempts", n, func(t *TaskView) any { return t.Attempts }) }
func leaseIs(state string) claim {
	return ofRow("lease", state, func(t *TaskView) any { return t.Lease })
}
func repeats(n int) claim { return ofRow("repeats", n, func(t *TaskView) any { return t.Duplicates }) }

// cause is why a person is asked.
func cause(word idemstore.Cause) claim {
	return ofRow("cause", word, func(t *TaskView) any { return orNone(t.Cause) })
}

func externalID(id string) claim {
	return ofRow("external_id", id, func(t *TaskView) any { return orNone(t.ExternalID) })
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func unsure(yes string) claim {
	return ofRow("unsure", yes, func(t *TaskView) any { return yesNo(t.Unsure) })
}

// pointsAt: the row has the id of the nth report that the provider made, counted from 1.
func pointsAt(n int) claim {
	return of("points_at", n, func(v View) any {
		if v.Task == nil || v.Task.ExternalID == "" {
			return none
		}
		if i := slices.Index(v.Provider.Reports, v.Task.ExternalID); i >= 0 {
			return i + 1
		}
		return v.Task.ExternalID
	})
}

// noTask: there is no row.
func noTask() claim {
	return of("task", none, func(v View) any {
		if v.Task == nil {
			return none
		}
		return v.Task.Status
	})
}

func requests(n int) claim { return of("requests", n, func(v View) any { return v.Provider.Requests }) }
func reports(n int) claim {
	return of("reports", n, func(v View) any { return len(v.Provider.Reports) })
}

// answers to POSTs, in any order: of two at the same moment either may be heard first.
func answers(statuses ...int) claim {
	return of("answers", list(statuses), func(v View) any { return list(v.Provider.Answers) })
}

func list(statuses []int) string {
	var texts []string
	for _, s := range slices.Sorted(slices.Values(statuses)) {
		texts = append(texts, fmt.Sprint(s))
	}
	return strings.Join(texts, ", ")
}

// idsGiven is how many different report ids the answers to POSTs had.
func idsGiven(n int) claim {
	return func(p *play, _ View) Check {
		ids := map[string]bool{}
		_, answered := p.calls.of(p.concerns)
		for _, c := range answered {
			if c.Method == http.MethodPost {
				ids[c.ExternalID] = true
			}
		}
		return compare("ids_given", n, len(ids))
	}
}

// keysSent is how many different keys the POSTs had. One is the key of the task.
func keysSent(n int) claim {
	return func(p *play, _ View) Check {
		keys := map[string]bool{}
		received, _ := p.calls.of(p.concerns)
		for _, c := range received {
			if c.Method == http.MethodPost {
				keys[c.Key] = true
			}
		}
		if n == 1 {
			return compare("key_sent", p.key(), strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		return compare("keys_sent", n, len(keys))
	}
}

// waiting is how many messages are in the stream.
func waiting(n int) claim { return of("messages", n, func(v View) any { return v.Message.InStream }) }

// secondWaits: of two requests together, the second waited in the database for the first.
func secondWaits(want string) claim {
	return func(p *play, _ View) Check { return compare("waited_for", want, yesNo(p.waited)) }
}

// completion is what became of the last completion by hand.
func completion(want string) claim {
	return func(p *play, _ View) Check { return compare("completion", want, p.completion) }
}

// row: it is as it was a step before, but for the clock.
func row(want string) claim {
	return func(p *play, before View) Check {
		was, is := *before.Task, *p.view.Task
		was.LeaseRest, is.LeaseRest = 0, 0
		got := unchanged
		if was != is {
			got = fmt.Sprintf("%+v", is)
		}
		return compare("row", want, got)
	}
}

// exitCode is how the worker that was started last ended.
func exitCode(n int) claim {
	return func(p *play, _ View) Check {
		w := p.workers[len(p.workers)-1]
		return compare("exit_code", n, w.process.ExitCode())
	}
}
