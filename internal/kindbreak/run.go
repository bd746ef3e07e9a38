package kindbreak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/kindfile"
)

// Options say what is run, and against what.
type Options struct {
	Kind *kindfile.Kind
	URL  *url.URL // of the provider, in place of the file's: of a sandbox, where effects hurt nobody
	Jobs [][]byte // that nobody has done there; Needed of them, with keys of their own

	Worker func() *exec.Cmd // a worker of the kind, whose provider is at SETTLE_PROVIDER_URL
	Logs   io.Writer        // of the workers
	Limit  time.Duration    // for one story; 2 min

	Live func(Told) // after each story; may be nil
}

// Told is how a story came out.
type Told struct {
	Story   string           `json:"story"`
	Holds   bool             `json:"holds"`
	Says    string           `json:"says"`
	Key     string           `json:"key"`
	Status  idemstore.Status `json:"status"`
	Sends   int              `json:"sends"`
	Effects []string         `json:"effects"` // ids
	Seconds float64          `json:"seconds"`
}

// ErrJobs is wrapped by errors that say which job is wrong.
var ErrJobs = errors.New("these jobs cannot be used")

// Run tells each story with a job of its own, one after the other, on servers that are started for it. It blocks until all
// are told or ctx ends. The error says what kept it from going on; a story that does not hold is none.
func Run(ctx context.Context, o Options) (told []Told, err error) {
	if o.Limit <= 0 {
		o.Limit = 2 * time.Minute
	}
	keys, err := keysOf(o)
	if err != nil {
		return nil, err
	}
	s := &stage{worker: o.Worker, logs: o.Logs}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	f := newFront(o.Kind, o.URL, s.kill)
	at, stop, err := f.listen(ctx)
	if err != nil {
		return nil, err
	}
	s.later(stop)
	s.at = at
	s.later(s.dismiss)
	if err := s.hire(); err != nil {
		return nil, err
	}
	for i, st := range storiesOf(o.Kind) {
		t, err := s.tell(ctx, f, o, st, o.Jobs[i], keys[i])
		if err != nil {
			return told, fmt.Errorf("%s: %w", st.name, err)
		}
		told = append(told, t)
		if o.Live != nil {
			o.Live(t)
		}
	}
	return told, nil
}

// keysOf makes the keys of the jobs, which are to be different.
func keysOf(o Options) (keys []string, err error) {
	if need := Needed(o.Kind); len(o.Jobs) < need {
		return nil, fmt.Errorf("%w: there are %d, and each of %d stories needs one of its own", ErrJobs, len(o.Jobs), need)
	}
	def, err := o.Kind.Definition(kindfile.Options{URL: o.URL.String()})
	if err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for i, body := range o.Jobs {
		var job kindfile.Job
		if err := json.Unmarshal(body, &job); err != nil {
			return nil, fmt.Errorf("%w: job %d is not JSON: %w", ErrJobs, i+1, err)
		}
		key, err := def.Key(job)
		if err != nil {
			return nil, fmt.Errorf("%w: job %d: %w", ErrJobs, i+1, err)
		}
		if first := seen[key]; first > 0 {
			return nil, fmt.Errorf("%w: jobs %d and %d have the same key", ErrJobs, first, i+1)
		}
		seen[key] = i + 1
		keys = append(keys, key)
	}
	return keys, nil
}

// tell publishes a job, waits until it is over, publishes it again, and looks at what the provider told.
func (s *stage) tell(ctx context.Context, f *front, o Options, st story, job []byte, key string) (Told, error) {
	began := time.Now()
	f.begin(st)
	for i := range map[bool]int{false: 1, true: 2}[st.twice] {
		if err := s.publish(ctx, o.Kind.Name, job, fmt.Sprintf("%s-%d", key, i)); err != nil {
			return Told{}, err
		}
	}
	task, err := s.over(ctx, o, key)
	if err != nil {
		return Told{}, err
	}
	before, _, _ := f.seen()
	if err := s.again(ctx, o, job, task); err != nil {
		return Told{}, err
	}
	t := Told{Story: st.name, Key: key, Status: task.Status, Seconds: time.Since(began).Seconds()}
	var bad []string
	t.Sends, t.Effects, bad = f.seen()
	t.Says = verdict(task, t, t.Sends > before, bad)
	if t.Holds = t.Says == ""; t.Holds {
		t.Says = happened(t)
	}
	return t, nil
}

// over waits until the task needs nobody but a person any more.
func (s *stage) over(ctx context.Context, o Options, key string) (task idemstore.Task, err error) {
	err = s.await(ctx, o.Limit, func(ctx context.Context) (bool, error) {
		found, err := s.store.Find(ctx, o.Kind.Name, key)
		if errors.Is(err, idemstore.ErrNotFound) {
			return false, nil
		}
		task = found
		return err == nil && (task.Status.Final() || task.Status == idemstore.NeedsReview), err
	})
	return task, err
}

// again publishes the job once more and waits until it is answered from the row.
func (s *stage) again(ctx context.Context, o Options, job []byte, before idemstore.Task) error {
	if !before.Status.Final() {
		return nil
	}
	if err := s.publish(ctx, o.Kind.Name, job, before.Key+"-again"); err != nil {
		return err
	}
	return s.await(ctx, o.Limit, func(ctx context.Context) (bool, error) {
		now, err := s.store.FindByID(ctx, before.TaskID)
		return now.Duplicates > before.Duplicates, err
	})
}

// verdict says what does not hold; empty if everything does.
func verdict(task idemstore.Task, t Told, again bool, bad []string) string {
	switch {
	case len(t.Effects) > 1:
		return fmt.Sprintf("the provider made %d effects (%s): in production somebody would be charged twice. Does it keep keys, as the file says?",
			len(t.Effects), strings.Join(t.Effects, ", "))
	case again:
		return "a repeat of the finished job was sent to the provider again"
	case task.TaskID == 0:
		return "no worker accepted the job in time; the workers' log says why"
	case task.Status == idemstore.NeedsReview:
		return "a person would be called: " + consumer.Scrub(task.LastError)
	case task.Status == idemstore.Failed && len(bad) > 0:
		return fmt.Sprintf("the job failed: the provider answered %s, and the file reads that as a refusal. Are these jobs good, and new to it?", bad[0])
	case task.Status != idemstore.Finished:
		return fmt.Sprintf("the job is %s, not finished in time: %s", task.Status, consumer.Scrub(task.LastError))
	case len(t.Effects) == 1 && t.Effects[0] != task.ExternalID:
		return fmt.Sprintf("the task says %s, and the provider made %s", task.ExternalID, t.Effects[0])
	}
	return ""
}

// happened says what a story that holds came to.
func happened(t Told) string {
	if t.Sends == 1 {
		return "one effect, sent once"
	}
	return fmt.Sprintf("one effect, sent %d times under one key", t.Sends)
}
