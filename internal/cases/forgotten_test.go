package cases

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// mortal is a stage with a broker of its own that can be killed, on files that the test can reach.
type mortal struct {
	*stage
	broker *devenv.NATSProcess
	files  string
}

func newMortal(t *testing.T) mortal {
	t.Helper()
	files := filepath.Join(t.TempDir(), "broker")
	broker, err := devenv.StartNATSProcess(t.Context(), devenv.NATSOptions{Dir: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := mortal{newStageAt(t, broker.URL(), connectTo(t, broker.URL()), 1), broker, files}
	m.settings.Config.Slots, m.settings.Config.Lease, m.settings.Config.AckWait = 12, 20*time.Second, 5*time.Second
	return m
}

// restart brings the broker back, and waits for the test's own client.
func (m mortal) restart() {
	m.t.Helper()
	if err := m.broker.Restart(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	rig.Eventually(m.t, soon, "the broker is back", func() bool { _, err := m.js.Stream(m.t.Context(), "JOBS"); return err == nil })
}

// reports are so many jobs, which emit nothing.
func reports(many int) (jobs []job) {
	for i := range many {
		jobs = append(jobs, report(i+1))
	}
	return jobs
}

// A broker with one replica writes its acks down a little after it has confirmed them, and the disk has them later still.
// Here the machine stops, and the files are as they were before the acks: every message is delivered again. The rows know
// that the jobs are done. The messages are acked as duplicates, and nothing is sent.
func TestBrokerForgetsConfirmedAcks(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	jobs, kept := reports(m.settings.Config.Slots), filepath.Join(t.TempDir(), "kept")
	var releases []func()
	var reached []<-chan struct{}
	for range jobs {
		there, release := m.hold(provider.Received)
		reached, releases = append(reached, there), append(releases, release)
	}
	w := m.startWorker()
	m.publish(jobs...)
	for _, there := range reached {
		rig.Await(t, there, soon, "every job is in its provider call")
	}
	copyFiles(t, kept, m.files)
	for _, release := range releases {
		release()
	}
	m.holds(jobs...)
	before := map[string]int{}
	for _, j := range jobs {
		task, _ := m.find(j)
		before[j.key] = task.Duplicates
	}
	m.broker.Kill()
	if err := os.RemoveAll(m.files); err != nil {
		t.Fatal(err)
	}
	copyFiles(t, m.files, kept)
	m.restart()
	for _, j := range jobs {
		m.await(j, "answered again", func(x idemstore.Task) bool { return x.Duplicates > before[j.key] })
	}
	m.holds(jobs...)
	drained(t, w)
	for _, j := range jobs {
		m.sent(j, 1, 1)
	}
}

// copyFiles copies a broker's files. A live one writes each state anew and then renames it: what is on its way there is no
// state yet.
func copyFiles(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		switch {
		case strings.HasSuffix(path, ".tmp"):
			return nil
		case err != nil:
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The broker is killed the moment it has handled the last of many acks, whose confirmation nobody sees. What comes again
// is acked as a duplicate; whatever the broker still knows, nothing is lost and nothing is sent twice.
func TestBrokerKilledBehindItsAcks(t *testing.T) {
	t.Parallel()
	m := newMortal(t)
	jobs := reports(3 * m.settings.Config.Slots)
	proxy := m.throughNATS()
	w := m.startWorker()
	awaitLine(t, w, "msg=serving")
	dead := proxy.DropReply(rig.PublicationCut{Skip: len(jobs) - 1, Do: m.broker.Kill})
	m.publish(jobs...)
	rig.Await(t, dead.Fired(), soon, "the broker dies once it has handled the last ack")
	m.restart()
	m.holds(jobs...)
	drained(t, w)
	for _, j := range jobs {
		m.sent(j, 1, 1)
	}
}
