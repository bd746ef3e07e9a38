package consumer

import (
	"fmt"
	"strings"
	"time"

	"github.com/settlemq/settle/idemstore"
)

// The alerts. The cause decides what is one alert; the text says what happened, and where to go on.

// reviewWords says why a task waits for a person.
var reviewWords = map[idemstore.Cause]string{
	idemstore.CauseBudget:          "its failures are used up",
	idemstore.CauseAge:             "it was not settled within its age limit",
	idemstore.CauseConflict:        "data contradict each other, or a record that must exist does not",
	idemstore.CauseContradictory:   "the provider has other content, or two effects",
	idemstore.CauseTwoEffects:      "the provider gave two ids for it; there may be two effects",
	idemstore.CauseNotBooked:       "it is done at the provider, and the local rows were refused",
	idemstore.CauseRefusalUnbooked: "the provider refused it, and the local rows were refused",
	idemstore.CauseSkipUnbooked:    "it is out of date, and the local rows that say so were refused",
	idemstore.CauseAbsent:          "it may have been sent, the provider does not know it, and nothing permits to send it again",
	idemstore.CauseVanished:        "the provider does not know an id that it once gave",
	idemstore.CauseNoLookup:        "it may have been sent, and its kind cannot ask",
	idemstore.CauseReplayedError:   "the provider keeps answering with a stored error",
}

func reviewAlert(kind string, cause idemstore.Cause, task int64) idemstore.Raising {
	why := or(reviewWords[cause], "nobody can tell what became of it")
	return idemstore.Raising{Cause: fmt.Sprintf("needs_review %s %s", kind, cause), Kind: kind, TaskID: task, Count: 1,
		Text: fmt.Sprintf("A task of %s needs a person: %s. See settle tasks list --kind %s --status needs_review", kind, why, kind)}
}

func conflictAlert(kind string, task int64) idemstore.Raising {
	return idemstore.Raising{Cause: "conflict " + kind, Kind: kind, TaskID: task, Count: 1,
		Text: fmt.Sprintf("A message of %s has the key of a task with other content. It was refused and kept. See settle refusals list --kind %s", kind, kind)}
}

func incomparableAlert(kind string, task int64) idemstore.Raising {
	return idemstore.Raising{Cause: "incomparable " + kind, Kind: kind, TaskID: task, Count: 1,
		Text: fmt.Sprintf("The content of a task of %s was hashed by a newer build, and its messages wait. Let workers of that build serve them", kind)}
}

// lateProofAlert is for a task that is over while an attempt that had lost it proves another effect.
func lateProofAlert(kind string, task int64) idemstore.Raising {
	return idemstore.Raising{Cause: "late_proof " + kind, Kind: kind, TaskID: task, Count: 1,
		Text: fmt.Sprintf("A task of %s is over, and an attempt that had lost it proves another effect: there may be two, or one of what counts as failed. See settle tasks show %d",
			kind, task)}
}

func stuckAlert(s idemstore.StuckKind, age time.Duration) idemstore.Raising {
	return idemstore.Raising{Cause: "stuck " + s.Kind, Kind: s.Kind, TaskID: s.TaskID, Count: s.Count, Absolute: true,
		Text: fmt.Sprintf("Tasks of %s are older than %s and not settled. See settle tasks list --kind %s --status unknown, the same with --status started, and settle drift", s.Kind, age, s.Kind)}
}

// strayAlert is for messages of kinds that nobody serves: a kind that is misspelt, or whose workers are gone.
func strayAlert(n int, subject string) idemstore.Raising {
	return idemstore.Raising{Cause: "unrouted", Count: n, Absolute: true, Text: fmt.Sprintf(
		"Messages that no consumer is given lie in stream %s, such as those of %s. Nobody does these jobs. See settle tasks list --unrouted",
		jobStream, bounded(subject, maxCause))}
}

// givenUpAlert is for messages that the broker delivers to nobody any more. Workers take them up, late; the setting that made
// it give up is a person's to change.
func givenUpAlert(kind string, n int, inAll bool) idemstore.Raising {
	return idemstore.Raising{Cause: "given_up " + kind, Kind: kind, Count: n, Absolute: inAll,
		Text: fmt.Sprintf("The broker gave up on messages of %s. Workers take them up all the same, but late. Set MaxDeliver of its consumer to -1; see settle drift", kind)}
}

// unsendableAlert is for what was committed and cannot be published: whoever waits for it waits in vain.
func unsendableAlert(row idemstore.OutboxRow) idemstore.Raising {
	return idemstore.Raising{Cause: "unsendable", Kind: row.TaskKind, TaskID: row.TaskID, Count: 1, Text: "Committed events or follow-up jobs, such as one for " +
		bounded(row.Subject, maxCause) + ", cannot be published. They are kept whole. See settle refusals list --reason outbox"}
}

func terminatedAlert(kind string) idemstore.Raising {
	return idemstore.Raising{Cause: "terminated " + kind, Kind: kind, Count: 1,
		Text: fmt.Sprintf("Somebody who is no worker terminated messages of %s. They are gone from the stream, and so is the job, unless a worker had begun it", kind)}
}

// downAlert is for a breaker that opened because nothing gets through.
func (r *remote) downAlert(c circuit) idemstore.Raising {
	return idemstore.Raising{Cause: bounded("provider_down "+r.name, maxCause), Kind: r.oneKind(), Count: 1,
		Text: bounded(fmt.Sprintf("The provider %s has failed %d times in a row. Its kinds (%s) take no messages; it is tried every %s",
			r.name, c.failures, r.kindNames(), c.every), maxErrorText)}
}

// barredAlert is for a provider that does not let us in as we are set up.
func (r *remote) barredAlert(task int64) idemstore.Raising {
	return idemstore.Raising{Cause: bounded("misconfigured "+r.name, maxCause), Kind: r.oneKind(), TaskID: task, Count: 1,
		Text: bounded(fmt.Sprintf("The provider %s does not let us in as we are set up: address, rights, token or certificate. Jobs of %s wait",
			r.name, r.kindNames()), maxErrorText)}
}

// maxCause bounds the name of a cause: it is a key.
const maxCause = 1 << 10

func bounded(text string, limit int) string {
	out, _ := cleanText([]byte(text), limit)
	return out
}

// oneKind is the kind of a provider that has only one.
func (r *remote) oneKind() string {
	if len(r.kinds) == 1 {
		return r.kinds[0].name
	}
	return ""
}

func (r *remote) kindNames() string {
	names := make([]string, len(r.kinds))
	for i, k := range r.kinds {
		names[i] = k.name
	}
	return strings.Join(names, ", ")
}
