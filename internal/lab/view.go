package lab

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// View is what each side believes at one moment.
type View struct {
	Workers  []WorkerView `json:"workers"`
	Task     *TaskView    `json:"task"` // null: no row
	Provider ProviderView `json:"provider"`
	Message  *MessageView `json:"message"`          // null: the lab has no messages
	Person   []string     `json:"person,omitempty"` // what a person sees who is called
	Notes    []string     `json:"notes,omitempty"`  // about how the story had to be told
}

// WorkerView is what a worker knows, in words.
type WorkerView struct {
	Name  string `json:"name"`
	Knows string `json:"knows"`
}

// TaskView is the row in settle.tasks.
type TaskView struct {
	ID         int64   `json:"id"`
	Status     string  `json:"status"`
	Attempts   int     `json:"attempts"`
	Lease      string  `json:"lease"`      // live, expired or none, by the clock of the database
	LeaseRest  float64 `json:"lease_rest"` // seconds until it ends; negative: since it has ended
	ExternalID string  `json:"external_id"`
	Unsure     bool    `json:"unsure"`
	Duplicates int     `json:"duplicates"`
	Cause      string  `json:"cause,omitempty"` // why a person is asked
	LastError  string  `json:"last_error,omitempty"`
}

// ProviderView is what the provider has, for the task at hand or for all that stand for the same piece of work.
type ProviderView struct {
	Requests int      `json:"requests"` // POSTs received
	Answers  []int    `json:"answers"`  // to them, in their order; 0: the connection was closed
	Lookups  []int    `json:"lookups"`  // answers to look-ups
	Reports  []string `json:"reports"`  // the effects: ids of what was really made
}

// MessageView is the stream: what it still has, and how often it has delivered.
type MessageView struct {
	InStream   uint64 `json:"in_stream"`
	Deliveries uint64 `json:"deliveries"`
}

// The states of a lease.
const (
	live    = "live"
	expired = "expired"
	none    = "none"
)

// look sees all sides.
func (p *play) look(ctx context.Context) (v View, err error) {
	v.Workers = []WorkerView{}
	for _, w := range p.workers {
		v.Workers = append(v.Workers, WorkerView{w.name, p.words.say(w.belief.id, w.belief.fill...)})
	}
	v.Person, v.Notes = p.person, p.notes
	if v.Task, err = p.taskView(ctx); err != nil {
		return v, err
	}
	if v.Provider, err = p.providerView(ctx); err != nil || p.story.byHand {
		return v, err
	}
	m, err := p.messages(ctx)
	v.Message = &m
	return v, err
}

// row is the task's row, or nil.
func (p *play) row(ctx context.Context) (*idemstore.Task, error) {
	t, err := p.store.Find(ctx, p.kind, p.key())
	if errors.Is(err, idemstore.ErrNotFound) {
		return nil, nil
	}
	return &t, err
}

func (p *play) taskView(ctx context.Context) (*TaskView, error) {
	t, err := p.row(ctx)
	if t == nil || err != nil {
		return nil, err
	}
	v := &TaskView{ID: t.TaskID, Status: string(t.Status), Attempts: t.Attempt, Lease: none, ExternalID: t.ExternalID,
		Unsure: t.Unsure, Duplicates: t.Duplicates, Cause: string(t.Cause), LastError: t.LastError}
	if t.LeaseUntil != nil {
		var now time.Time
		if err := p.pool.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err != nil {
			return nil, err
		}
		v.Lease, v.LeaseRest = live, t.LeaseUntil.Sub(now).Seconds()
		if v.LeaseRest <= 0 {
			v.Lease = expired
		}
	}
	return v, nil
}

// reportsMade are the effects at the provider.
const reportsMade = `select report_id from provider.reports where task_id = any ($1::numeric[]) and status <> 'failed' order by id`

func (p *play) providerView(ctx context.Context) (v ProviderView, err error) {
	received, answered := p.calls.of(p.concerns)
	v = ProviderView{Answers: []int{}, Lookups: []int{}}
	for _, c := range received {
		if c.Method == http.MethodPost {
			v.Requests++
		}
	}
	for _, c := range answered {
		if c.Method == http.MethodPost {
			v.Answers = append(v.Answers, c.Status)
		} else {
			v.Lookups = append(v.Lookups, c.Status)
		}
	}
	rows, err := p.pool.Query(ctx, reportsMade, p.work)
	if err != nil {
		return v, err
	}
	v.Reports, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return v, err
}

// concerns reports whether a call is about the piece of work at hand.
func (p *play) concerns(c provider.Call) bool {
	return slices.ContainsFunc(p.work, func(task int64) bool {
		number := strconv.FormatInt(task, 10)
		return c.TaskID == number || c.Method == http.MethodGet && c.Key == "report-task-"+number
	})
}

func (p *play) messages(ctx context.Context) (m MessageView, err error) {
	stream, err := p.js.Stream(ctx, "JOBS")
	if err != nil {
		return m, err
	}
	m.InStream = stream.CachedInfo().State.Msgs
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		c, err := stream.Consumer(ctx, name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return m, err
		}
		m.Deliveries += c.CachedInfo().Delivered.Consumer
	}
	return m, names.Err()
}
