package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

const (
	defaultWait = 30 * time.Second
	longestWait = 24 * time.Hour
)

// waitFlag is --wait, or --wait=5m.
type waitFlag = cli.FlagBase[time.Duration, cli.NoConfig, waitValue]

// waitValue is a duration that need not be written. Its methods make it a value of the library.
type waitValue time.Duration

func (waitValue) Create(given time.Duration, to *time.Duration, _ cli.NoConfig) cli.Value {
	*to = given
	return (*waitValue)(to)
}

func (waitValue) ToString(d time.Duration) string { return story.Short(d) }

func (w *waitValue) Set(text string) error {
	if text == "true" { // the library's word for a flag without a value
		*w = waitValue(defaultWait)
		return nil
	}
	d, err := time.ParseDuration(text)
	*w = waitValue(d)
	return err
}

func (w *waitValue) Get() any       { return time.Duration(*w) }
func (w *waitValue) String() string { return story.Short(time.Duration(*w)) }
func (*waitValue) IsBoolFlag() bool { return true }

func waitFlags() []cli.Flag {
	return []cli.Flag{
		&waitFlag{Name: "wait", Usage: "wait for the result of each job, up to " + story.Short(defaultWait) + " or as long as --wait=`TIME` says",
			HideDefault: true, Validator: upTo(longestWait)},
		secretFlag("database-url", "DATABASE_URL", "with --wait: also look at the task in this Postgres (`URL`), where an answer is lost"),
	}
}

// openAnswers is the database that --wait also looks at; nil without one.
func openAnswers(ctx context.Context, cmd *cli.Command) (*pgxpool.Pool, error) {
	if !cmd.IsSet("wait") || cmd.String("database-url") == "" {
		return nil, nil
	}
	pool, err := openPool(ctx, cmd, "settle-publisher", false, nil)
	if err != nil {
		return nil, err
	}
	if err := idemstore.New(pool, 0).CheckSchema(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// answersIn is db as calls take it: no pool at all is no database.
func answersIn(db *pgxpool.Pool) consumer.DB {
	if db == nil {
		return nil
	}
	return db
}

var errWaited = errors.New("waited long enough")

// caller publishes one job and waits for what becomes of it. Ctrl-C ends the wait, and not the publishing.
func caller(js jetstream.JetStream, db consumer.DB, limit time.Duration) sendFunc {
	return func(ctx context.Context, def consumer.Definition, j job) answer {
		publishing, published := context.WithTimeout(context.WithoutCancel(ctx), publishDeadline)
		defer published()
		call, err := consumer.StartCall(publishing, db, js, def, j.Body, j.Headers)
		if err != nil {
			return answerOf(consumer.Publication{}, err)
		}
		a := answerOf(call.Publication, nil)
		a.Kind, a.Key = j.Kind, call.Publication.Key
		waiting, stop := context.WithTimeoutCause(ctx, limit, errWaited)
		defer stop()
		result, err := call.Wait(waiting)
		return a.with(result, err)
	}
}

// statusPending is the status of a job that has not ended as far as this command knows.
const statusPending idemstore.Status = "pending"

// with adds what became of a job that was published.
func (a answer) with(result consumer.Answer[json.RawMessage], err error) answer {
	var refused *consumer.InvalidJobError
	switch {
	case errors.As(err, &refused): // by a worker, which has kept the message
		a.Outcome, a.Reason, a.Detail = outcomeRefused, string(refused.Reason), refused.Detail
	case errors.Is(err, errWaited):
		a.Status, a.Reason = statusPending, "timeout"
	case errors.Is(err, context.Canceled):
		a.Status, a.Reason = statusPending, "stopped"
	case err != nil:
		a.Status, a.Reason, a.Detail = statusPending, "unanswered", err.Error()
	default:
		a.Status, a.Task, a.Replayed, a.Result = result.Status, result.TaskID, &result.Replayed, result.Result
	}
	return a
}

// inWords says what became of a job that was waited for.
func (a answer) inWords() string {
	name := story.Printable(a.Kind + "/" + a.Key)
	if a.Status == statusPending {
		text := fmt.Sprintf("pending (%s): %s stays in the queue and goes on", a.Reason, name)
		if a.Detail != "" {
			text += ": " + story.Printable(a.Detail)
		}
		return text
	}
	text := fmt.Sprintf("%s: %s, task %d", story.Status(a.Status), name, a.Task)
	if a.Replayed != nil && *a.Replayed {
		text += ", done before"
	}
	if len(a.Result) > 0 {
		text += ": " + story.Printable(string(a.Result))
	}
	return text
}

// ends are how many jobs came to what, of those that were waited for.
type ends map[idemstore.Status]int

func (e ends) String() string {
	return fmt.Sprintf("%d done, %d failed, %d need review, %d pending",
		e[idemstore.Finished], e[idemstore.Failed], e[idemstore.NeedsReview], e[statusPending])
}

// err is an error unless all of them are done. Of several exit codes it has the smallest.
func (e ends) err() error {
	switch {
	case e[idemstore.Failed] > 0:
		return &exitError{exitJobFailed, fmt.Errorf("publish: %d jobs failed for good%s", e[idemstore.Failed], e.rest())}
	case e[idemstore.NeedsReview] > 0:
		return &exitError{exitReview, fmt.Errorf("publish: %d jobs need a person: settle tasks list --status needs_review%s",
			e[idemstore.NeedsReview], e.rest())}
	case e[statusPending] > 0:
		return &exitError{exitPending, errors.New("publish: " + e.rest()[2:])}
	}
	return nil
}

// rest says of jobs without a result that they are not lost.
func (e ends) rest() string {
	if e[statusPending] == 0 {
		return ""
	}
	return fmt.Sprintf("; %d jobs have no result yet: they are stored and go on without this command, nothing is lost. "+
		"Publish the same lines again with --wait to hear it, or see settle tasks show KIND/KEY", e[statusPending])
}
