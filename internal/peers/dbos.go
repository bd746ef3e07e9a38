package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/bench"
)

// workflows at once, and connections.
const workflows = 64

var dbosPeer = peer{name: "dbos", make: dbosContestant, settings: []string{
	fmt.Sprintf("Transact v1.8.0: a workflow of one step for each message, with the key as its id, %d at once; its result is awaited before the confirmed ack", workflows),
	"a pool of 64 connections, where its default is 20; everything else by default",
	fmt.Sprintf("one %dth of the jobs; its start is not counted", fewerBy),
}}

func dbosContestant(o bench.Options) bench.Contestant {
	return bench.Contestant{Name: "dbos", Label: fmt.Sprintf("DBOS Transact, %d workflows", workflows), Jobs: fewer(o),
		Connections: workflows, Prepare: dbosPrepare, Race: dbosWork,
		Check: func(ctx context.Context, s *bench.Stage) error { return expect(ctx, s, dbosDone) }}
}

// dbosDone counts workflows, and those that ended well, with one recorded step.
const dbosDone = `select count(*), count(*) filter (where status = 'SUCCESS' and
  (select count(*) from dbos.operation_outputs o where o.workflow_uuid = w.workflow_uuid and o.error is null) = 1)
from dbos.workflow_status w`

// dbosPrepare has the tables made before the clock runs.
func dbosPrepare(ctx context.Context, s *bench.Stage) error {
	if err := withDBOS(ctx, s, func(dbos.Context) error { return nil }); err != nil {
		return err
	}
	return s.Queue(ctx)
}

// dbosWork does not count the time in which DBOS is launched.
func dbosWork(ctx context.Context, s *bench.Stage) (figures []float64, err error) {
	err = withDBOS(ctx, s, func(d dbos.Context) (err error) {
		figures, err = bench.Rate(func(ctx context.Context, s *bench.Stage) error {
			return s.OneByOne(ctx, func(ctx context.Context, m jetstream.Msg) error { return dbosOne(ctx, d, m) })
		})(ctx, s)
		return err
	})
	return figures, err
}

func dbosOne(ctx context.Context, d dbos.Context, m jetstream.Msg) error {
	var j noop
	if err := json.Unmarshal(m.Data(), &j); err != nil {
		return err
	}
	handle, err := dbos.RunWorkflow(d, workflow, string(m.Data()), dbos.WithWorkflowID(j.ID))
	if err != nil {
		return err
	}
	if _, err := handle.GetResult(); err != nil {
		return err
	}
	return m.DoubleAck(ctx)
}

func workflow(d dbos.Context, payload string) (string, error) {
	return dbos.RunAsStep(d, func(context.Context) (string, error) {
		var j noop
		err := json.Unmarshal([]byte(payload), &j)
		return j.ID, err
	})
}

// withDBOS runs f while DBOS does. The pool is its own: it is closed with it.
func withDBOS(ctx context.Context, s *bench.Stage, f func(dbos.Context) error) error {
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return err
	}
	config.MaxConns = workflows
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := dbos.NewContext(ctx, dbos.Config{AppName: "peers", SystemDBPool: pool, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer dbos.Shutdown(d, 10*time.Second) //nolint:errcheck // the pool and the database end with it
	dbos.RegisterWorkflow(d, workflow)
	if err := dbos.Launch(d); err != nil {
		return err
	}
	return f(d)
}
