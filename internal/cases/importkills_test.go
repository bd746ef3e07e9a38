package cases

import (
	"testing"
	"time"

	"github.com/settlemq/settle/internal/rig"
)

// Ten thousand records and twenty kills, each around a commit: every record is imported once. Two workers live at any
// time but the last, so that another one goes on as soon as the lease of the killed one is over.
//
// It is not parallel: it keeps every core busy for half a minute, and the others here wait for leases of a second.
func TestImportKilledTwentyTimes(t *testing.T) {
	const records, kills = 10_000, 20
	s, j := newStage(t), batch(records)
	s.settings.Config.MaxBody = 1 << 20
	s.settings.Config.Policy.MaxFailures = 3 * kills // each kill costs one, and so does a lease that a slow machine loses
	s.settings.Config.NoRecovery, s.settings.Config.RecoverEvery = false, 100*time.Millisecond
	direct := s.settings.DatabaseURL
	killed := make(chan struct{}, kills)
	startMortal := func(n int) {
		s.settings.DatabaseURL = direct
		proxy := s.throughPostgres()
		w, arm := s.startImporter(), proxy.CutBeforeCommit
		if n%2 == 0 {
			arm = proxy.DropCommitAnswer
		}
		arm(rig.CommitCut{Containing: "settle:add-step", Skip: 449, Do: func() { kill(w); killed <- struct{}{} }})
	}
	startMortal(0)
	startMortal(1)
	s.publish(j)
	began := time.Now()
	for n := range kills {
		rig.Await(t, killed, soon, "a worker is killed at its record 450")
		if n+2 < kills {
			startMortal(n + 2)
		}
	}
	if done := len(query[int](s, `select idx from settle.steps`)); done >= records {
		t.Errorf("%d records were done before the last kill", done)
	}
	s.settings.DatabaseURL = direct
	last := s.startImporter()
	task := s.importedOnce(j, records)
	t.Logf("%d records with %d kills in %s", records, kills, time.Since(began).Round(time.Second))
	drained(t, last)
	if task.Attempt <= kills || task.Failures < kills {
		t.Errorf("%d attempts, %d failures; want one for each of %d kills and one more attempt", task.Attempt, task.Failures, kills)
	}
}
