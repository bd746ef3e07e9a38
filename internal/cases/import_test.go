package cases

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

const importKind = "contacts.import"

func importingKinds(*handlers.Client, settings) []consumer.Definition {
	return []consumer.Definition{handlers.Import(handlers.ImportOptions{}), handlers.Contact(handlers.ContactOptions{})}
}

// startImporter starts a process that serves contacts.import.
func (s *stage) startImporter(points ...rig.Point) *rig.Worker {
	s.t.Helper()
	return s.start(rig.WorkerOptions{Name: "importing", Points: points})
}

// batch is a job of contacts.import with n good records, each about a contact of its own.
func batch(n int) job {
	var b strings.Builder
	b.WriteString(`{"batch_id":"b_1","records":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"source_id":"c%d","version":1,"name":"Ada","email":"a%d@example.com"}`, i, i)
	}
	b.WriteString(`]}`)
	return job{importKind, "crm_batch_b_1", b.String()}
}

// importRows are what is committed of each record: the progress, the event and the contact, each with the transaction
// that wrote it last and the attempt that did. A record that is done again cannot have the same.
func (s *stage) importRows() []string {
	s.t.Helper()
	return query[string](s, `
		select format('record %s: %s at %s by %s; event %s of attempt %s by %s; contact %s by %s',
			s.idx, s.outcome, s.at, s.xmin, e.id, e.attempt, e.xmin, c.id, c.xmin)
		from settle.steps s
		left join shop.import_events e on e.task_id = s.task_id and e.idx = s.idx
		left join shop.contacts c on c.id = e.contact_id
		order by s.idx`)
}

// importedOnce checks that each of n good records was imported in one transaction with its progress, and no other.
func (s *stage) importedOnce(j job, n int) idemstore.Task {
	s.t.Helper()
	task := s.awaitStatus(j, idemstore.Finished)
	s.awaitSettled()
	var r handlers.ImportResult
	if err := json.Unmarshal(task.Result, &r); err != nil {
		s.t.Fatal(err)
	}
	if want := (handlers.ImportResult{BatchID: "b_1", Records: n, Imported: n}); r != want {
		s.t.Errorf("result %+v, want %+v", r, want)
	}
	var steps, events, contacts, together int
	s.scan(`select (select count(*) from settle.steps), (select count(*) from shop.import_events), (select count(*) from shop.contacts),
		(select count(*) from settle.steps s join shop.import_events e on e.task_id = s.task_id and e.idx = s.idx and e.xmin = s.xmin
			join shop.contacts c on c.id = e.contact_id and c.xmin = s.xmin and c.source_id = 'c' || s.idx)`,
		nil, &steps, &events, &contacts, &together)
	if steps != n || events != n || contacts != n || together != n {
		s.t.Errorf("%d steps, %d events, %d contacts, %d times all three of one record in one transaction; want %d of each",
			steps, events, contacts, together, n)
	}
	return task
}

// Killed around the commit of record 80 of 100: what was committed is not done again, and what was not is done.
func TestImportCrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		arm  func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot
		done int // records that are committed then
	}{
		{"before the commit of record 80", (*rig.PostgresProxy).CutBeforeCommit, 79},
		{"between that commit and its answer", (*rig.PostgresProxy).DropCommitAnswer, 80},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), batch(100)
			direct, proxy := s.settings, s.throughPostgres()
			first := s.startImporter()
			shot := c.arm(proxy, rig.CommitCut{Containing: "settle:add-step", Skip: 79, Do: func() { kill(first) }})
			s.publish(j)
			rig.Await(t, shot.Fired(), soon, c.name)
			died(t, first)
			before := s.importRows()
			if len(before) != c.done {
				t.Fatalf("%d records are committed, want %d", len(before), c.done)
			}
			s.settings = direct
			s.settings.Config.Lease = 5 * time.Second
			again := rig.Point{Span: "settle.step", Edge: rig.Start, Attribute: "settle.step", Value: fmt.Sprint(c.done - 1)}
			onward := rig.Point{Span: "settle.step", Edge: rig.Start, Attribute: "settle.step", Value: fmt.Sprint(c.done)}
			second := s.startImporter(again, onward)
			task := s.importedOnce(j, 100)
			second.AwaitPoint(onward, soon)
			drained(t, second)
			select {
			case <-second.Reached(again):
				t.Error("the second worker tried the last committed record again")
			default:
			}
			after := s.importRows()
			if !slices.Equal(after[:c.done], before) {
				t.Errorf("the first records are now\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
			if others := query[int](s, `select idx from shop.import_events where (attempt = 1) <> (idx < $1)`, c.done); len(others) > 0 {
				t.Errorf("records %v were done by the wrong attempt", others)
			}
			if task.Attempt != 2 || task.Failures != 1 {
				t.Errorf("%d attempts, %d failures; want 2 and 1", task.Attempt, task.Failures)
			}
		})
	}
}

// The answer to a record's commit is lost and the worker lives: it finds the record committed, and goes on with the next.
func TestImportCommitNotAnswered(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(*rig.PostgresProxy, rig.CommitCut) *rig.Shot{
		"committed": (*rig.PostgresProxy).DropCommitAnswer, "not committed": (*rig.PostgresProxy).CutBeforeCommit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, j := newStage(t), batch(20)
			s.settings.Config.Lease = 5 * time.Second
			shot := arm(s.throughPostgres(), rig.CommitCut{Containing: "settle:add-step", Skip: 9})
			w := s.startImporter()
			s.publish(j)
			rig.Await(t, shot.Fired(), soon, "the cut around the commit of record 10")
			task := s.importedOnce(j, 20)
			drained(t, w)
			if task.Attempt != 1 {
				t.Errorf("%d attempts, want 1", task.Attempt)
			}
		})
	}
}

// Frozen between two records past its lease, while another worker has claimed the batch: the one that wakes commits
// no record more.
func TestImportFrozenBetweenRecords(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), batch(100)
	direct, proxy := s.settings, s.throughPostgres()
	first := s.startImporter()
	shot := proxy.DropCommitAnswer(rig.CommitCut{Containing: "settle:add-step", Skip: 39, Do: func() { first.Signal(syscall.SIGSTOP) }})
	s.publish(j)
	rig.Await(t, shot.Fired(), soon, "the commit of record 40")
	first.AwaitStopped(soon)
	s.settings = direct
	s.settings.Config.Lease = 40 * time.Second // nobody renews it at the point
	claimed := rig.Point{Span: "settle.claim", Edge: rig.End, Action: rig.Block, Attribute: "settle.attempt", Value: "2"}
	second := s.startImporter(claimed)
	second.AwaitPoint(claimed, soon)
	before := s.importRows()
	first.Thaw()
	drained(t, first)
	if after := s.importRows(); len(before) != 40 || !slices.Equal(after, before) {
		t.Errorf("%d records when the worker froze, %d after it woke: %q", len(before), len(after), after[len(before):])
	}
	second.Release(claimed)
	s.importedOnce(j, 100)
	drained(t, second)
	if others := query[int](s, `select idx from shop.import_events where (attempt = 1) <> (idx < 40)`); len(others) > 0 {
		t.Errorf("records %v were done by the wrong attempt", others)
	}
}

// Frozen inside a record's transaction: the server ends that session, another worker takes over, and the record of the
// one that wakes is rolled back.
func TestImportFrozenInARecord(t *testing.T) {
	t.Parallel()
	s, j := newStage(t), batch(100)
	s.settings.Config.Policy.Deadline = time.Second // and a grace, after which the session ends
	inside := rig.Point{Span: "settle.step", Edge: rig.End, Nth: 41, Action: rig.Stop}
	first := s.startImporter(inside)
	s.publish(j)
	first.AwaitPoint(inside, soon)
	first.AwaitStopped(soon)
	if got := s.importRows(); len(got) != 40 {
		t.Errorf("%d records are committed, want 40", len(got))
	}
	s.settings.Config.Policy.Deadline, s.settings.Config.Lease = 10*time.Second, 5*time.Second
	second := s.startImporter()
	s.importedOnce(j, 100)
	before, row := s.importRows(), s.snapshot(j)
	first.Thaw()
	drained(t, first)
	drained(t, second)
	if !slices.Equal(s.importRows(), before) || s.snapshot(j) != row {
		t.Error("the worker that woke changed something")
	}
	if others := query[int](s, `select idx from shop.import_events where (attempt = 1) <> (idx < 40)`); len(others) > 0 {
		t.Errorf("records %v were done by the wrong attempt", others)
	}
}
