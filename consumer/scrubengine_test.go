package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/telemetry"
)

// quoting is what an indiscreet library says.
const quoting = `card 4111111111111111 of canary@example.com, Bearer tok_canary_8f3a9c, postgres://settle:hunter2canary@db/x`

// Whatever a handler, its panic, its key or the database says about a job: no log line, no span and no column for errors has
// what must not be seen, and the ids and the result are as they came.
func TestNothingSecretLeavesAHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	var log lockedBuffer
	b.conf.Logger = telemetry.Logger(&log, false, slog.LevelDebug)
	b.conf.Policy.MaxFailures = 1
	key := b.kind.Key
	b.kind.Key = func(j payJob) (string, error) {
		if j.Note == "key" {
			return "", errors.New(quoting)
		}
		return key(j)
	}
	b.kind.Lookup = func(context.Context, *Attempt[payJob]) (paid, Verdict, error) {
		return paid{}, CannotTell, errors.New(quoting)
	}
	b.kind.Perform = func(_ context.Context, a *Attempt[payJob]) (paid, error) {
		switch a.Job.Note {
		case "panic":
			panic(quoting)
		case "error":
			return paid{}, errors.New(quoting)
		case "refused":
			a.KeepAnswer(http.StatusPaymentRequired, []byte(quoting))
			return paid{}, Refused(fmt.Errorf("charge: %s", quoting))
		}
		return paid{ID: "4111111111111111"}, nil
	}
	b.kind.Commit = func(w *Writes, f Final[payJob, paid]) error {
		if f.Job.Note == "unbooked" {
			w.Exec(`select $1::text::numeric`, quoting)
		}
		return nil
	}
	stop := b.run()
	for i, note := range []string{"panic", "error", "refused", "unbooked", "key"} {
		b.publish(fmt.Sprintf(`{"order":%d,"note":%q}`, i+1, note))
	}
	b.publish(`{"order":6}`)
	for order, status := range map[int]idemstore.Status{1: idemstore.NeedsReview, 2: idemstore.NeedsReview, 3: idemstore.Failed, 4: idemstore.NeedsReview, 6: idemstore.Finished} {
		b.awaitStatus(fmt.Sprint("pay_", order), status)
	}
	b.awaitSettled()
	stop()

	var rows string
	if err := b.pool.QueryRow(t.Context(), `select string_agg(concat_ws(' ', x), E'\n') from (
		select last_error, answer, error_class from settle.tasks union all select reason, actor, '' from settle.task_events
		union all select detail, '', '' from settle.refusals) as x`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	hidden := map[string]string{"rows": rows, "log": log.b.String(), "spans": fmt.Sprintf("%+v", spans.GetSpans())}
	for where, text := range hidden {
		if where != "spans" && strings.Count(text, "[card]") == 0 {
			t.Errorf("nothing was scrubbed in the %s", where)
		}
		text = strings.ReplaceAll(text, `"external_id":"4111111111111111"`, "")
		for _, canary := range []string{"card 4111111111111111", "canary@example.com", "tok_canary", "hunter2canary"} {
			if at := strings.Index(text, canary); at >= 0 {
				t.Errorf("%q is in the %s: %s", canary, where, text[max(at-200, 0):min(at+100, len(text))])
			}
		}
	}
	if task := b.awaitStatus("pay_6", idemstore.Finished); task.ExternalID != "4111111111111111" || string(task.Result) != `{"id":"4111111111111111"}` {
		t.Errorf("id %s, result %s", task.ExternalID, task.Result)
	}
}
