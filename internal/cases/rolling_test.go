package cases

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/internal/rig"
)

// addThings is what the migration of a newer build may do while older workers run: it adds, and raises the version alone.
const addThings = `
	alter table settle.tasks add column added text;
	alter table settle.outbox add column added int not null default 0;
	create table settle.added (id int);
	create index tasks_added on settle.tasks (id) where added is not null;
	update settle.schema_version set version = version + 1`

// A rolling deploy under load: the schema is migrated, twice, and expanded as by a newer build while two workers are at
// work. Two more start; the older two are told to stop, one after the other, and end in order. Each job has one effect, none
// fails, none is sent twice, and nobody is called.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	const many = 160
	s := newCalmStage(t)
	s.settings.Quiet = true
	s.recovering()
	jobs := reports(many)
	older := []*rig.Worker{s.startWorker(), s.startWorker()}
	go1, go2, go3 := make(chan struct{}), make(chan struct{}), make(chan struct{})
	published := make(chan error, 1)
	go func() { // the load: as many jobs before each step of the deploy as after it
		for i, j := range jobs {
			if i%(many/4) == 0 && i > 0 {
				<-[]chan struct{}{go1, go2, go3}[i/(many/4)-1]
			}
			if _, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "jobs." + j.kind, Data: []byte(j.body)}); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	begun := func(n int) {
		t.Helper()
		rig.Eventually(t, soon, "the older workers are at work", func() bool { return query[int](s, `select count(*) from settle.tasks`)[0] >= n })
	}
	begun(10)
	close(go1)
	s.migrate()
	s.migrate()
	s.exec(addThings)
	newer := []*rig.Worker{s.startWorker(), s.startWorker()}
	begun(many/4 + 10)
	close(go2)
	ended(t, older[0])
	close(go3)
	ended(t, older[1])
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, "all jobs are done", func() bool {
		return query[int](s, `select count(*) from settle.tasks where status = 'finished'`)[0] == many
	})
	s.holds(jobs...)
	// A job that a stopping worker had claimed and not sent yet is given back, free of charge.
	for _, odd := range query[string](s, `select concat_ws(' ', key, status, failures, last_error) from settle.tasks where status <> 'finished' or failures > 0
		union all select concat_ws(' ', key, count(*), 'sends') from provider.requests where method = 'POST' group by key having count(*) > 1`) {
		t.Error(odd)
	}
	for _, w := range newer {
		ended(t, w)
	}
}
