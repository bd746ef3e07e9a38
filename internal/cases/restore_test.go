package cases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// apart gives the workers a database of their own, so that it can be restored without the provider's.
func (s *stage) apart(url string) {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	s.settings.DatabaseURL, s.tasks, s.store = url, pool, idemstore.New(pool, time.Second)
}

// backUp copies a database that nobody uses, and returns where the copy is.
func backUp(t *testing.T, url string) (copied string) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	server, err := devenv.DatabaseURL(url, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	name := config.Database + "_copy"
	if _, err := conn.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, config.Database); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `create database `+pgx.Identifier{name}.Sanitize()+` template `+pgx.Identifier{config.Database}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, `drop database `+pgx.Identifier{name}.Sanitize()+` with (force)`); err != nil {
			t.Error(err)
		}
	})
	if copied, err = devenv.DatabaseURL(url, name); err != nil {
		t.Fatal(err)
	}
	return copied
}

// leave starts a worker that dies when the effect of a job has happened, and before it is saved.
func (s *stage) leave(j job) {
	s.t.Helper()
	w := s.startWorker()
	gone := s.at(provider.AfterCommit, func(context.Context) { kill(w) })
	s.publish(j)
	rig.Await(s.t, gone, soon, "the worker is gone")
}

// drift is what settle drift finds, in short.
func (s *stage) drift() string {
	s.t.Helper()
	found, err := consumer.FindDrift(s.t.Context(), s.tasks, s.js, s.settings.Config, consumer.DriftCheck{Grace: time.Millisecond, Late: time.Millisecond, Limit: 100},
		referenceKinds(s.client(), s.settings)...)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, d := range found {
		if d.Sort != "settings" {
			out = append(out, fmt.Sprintf("%s %d", d.Sort, d.Count))
		}
	}
	return strings.Join(out, ", ")
}

// agree checks the end of each story: the tasks are finished, each with the one effect that the provider has for its key,
// and the provider has none beside them.
func (s *stage) agree(jobs ...job) {
	s.t.Helper()
	s.awaitSettled()
	for _, j := range jobs {
		task := s.awaitStatus(j, idemstore.Finished)
		if effects := s.effects(j); len(effects) != 1 || task.ExternalID != effects[0] {
			s.t.Errorf("%s: effects %q at the provider, want one; the row has %q", j.key, effects, task.ExternalID)
		}
	}
	if e := s.allEffects(); e != len(jobs) {
		s.t.Errorf("the provider has %d effects, and there are %d jobs", e, len(jobs))
	}
}

// Postgres is lost, and an older copy takes its place, while stream and provider are as they were. What was open in the copy
// is asked about and closed without anybody. What was accepted later is known to the provider alone, and drift cannot
// see it: its messages are gone. The publishers publish that time again, and the keys bring the effects that are there.
func TestPostgresIsOlderThanTheStream(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.apart(devtest.Database(t))
	s.recovering()
	first := s.startWorker()
	s.publish(report(1))
	s.awaitStatus(report(1), idemstore.Finished)
	drained(t, first)
	s.leave(report(2))
	copied := backUp(t, s.settings.DatabaseURL)

	second := s.startWorker()
	s.publish(report(3), report(4))
	s.agree(report(1), report(2), report(3), report(4))
	drained(t, second)
	s.publish(report(5)) // not delivered yet when it happens
	s.apart(copied)

	if found := s.drift(); found != "message_gone 1" {
		t.Errorf("drift finds %q, want the open task of the copy", found)
	}
	third := s.startWorker()
	s.awaitStatus(report(2), idemstore.Finished)
	s.awaitStatus(report(5), idemstore.Finished)
	if w, lookups := s.requests(report(2)); w != 1 || lookups == 0 {
		t.Errorf("the open task: %d sends, %d look-ups; want it asked about and not sent again", w, lookups)
	}
	for _, j := range []job{report(3), report(4)} {
		if _, there := s.find(j); there {
			t.Errorf("the copy knows %s", j.key)
		}
	}
	s.publish(reports(5)...) // the publishers' part
	s.agree(reports(5)...)
	drained(t, third)
}

// The broker is lost, and an older copy of its files takes its place. Messages that were settled after it come again: the
// rows answer them. Tasks that were open go on without their messages. What nobody had claimed is gone with the stream: the
// publishers publish it again. Sequences of the stream are used a second time, and no refusal is taken for another.
func TestTheStreamIsOlderThanPostgres(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	m.settings.Config.AckWait, m.settings.Config.Lease = time.Second, time.Second
	kept := filepath.Join(t.TempDir(), "kept")
	drained(t, m.startWorker()) // it has made the consumers
	m.publish(report(1), report(2))
	m.broker.Kill()
	copyFiles(t, kept, m.files)
	m.restart()

	m.recovering()
	first := m.startWorker()
	malformed := job{reportKind, "", "{"}
	m.publish(malformed, report(3))
	m.awaitStatus(report(3), idemstore.Finished)
	m.awaitSettled()
	drained(t, first)
	m.leave(report(4))
	m.publish(report(5))
	m.broker.Kill()
	if err := os.RemoveAll(m.files); err != nil {
		t.Fatal(err)
	}
	copyFiles(t, m.files, kept)
	m.restart()

	// The messages that came back were never delivered, as far as this broker knows: nothing is the matter with them yet.
	if found := m.drift(); found != "message_gone 1" {
		t.Errorf("drift finds %q, want the task whose message is gone", found)
	}
	second := m.startWorker()
	m.agree(report(1), report(2), report(3), report(4))
	for n := range 4 {
		if w, _ := m.requests(report(n + 1)); w != 1 {
			t.Errorf("report %d was sent %d times", n+1, w)
		}
	}
	if _, there := m.find(report(5)); there {
		t.Error("report 5 is known, and was claimed by nobody")
	}
	m.publish(malformed)
	m.publish(reports(5)...)
	m.agree(reports(5)...)
	if kept := m.refusals(); len(kept) != 2 {
		t.Errorf("refusals %q, want both messages", kept)
	}
	drained(t, second)
}
