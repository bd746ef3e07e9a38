package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// D-21 (b): columns are added to the tables while all slots are at work, with statements prepared on every connection.
// No job fails, none is tried twice, and the provider is asked once for each.
func TestD21ColumnAddedUnderLoad(t *testing.T) {
	t.Parallel()
	const quarter = 60
	s := newStage(t)
	s.settings.Config.Slots, s.settings.Config.Lease, s.settings.Config.AckWait = 16, 30*time.Second, 30*time.Second
	s.faults(provider.Fault{DelayBefore: 20 * time.Millisecond})
	w := s.serve(func(api *handlers.Client, o settings) []consumer.Definition {
		return append(referenceKinds(api, o), handlers.Contact(handlers.ContactOptions{}))
	}, func(c *pgxpool.Config) { c.MaxConns = 8 })

	var jobs []job
	more := func() {
		for n := range quarter {
			j := charge(fmt.Sprint(len(jobs)))
			if n%2 == 1 {
				j = report(len(jobs))
			}
			jobs = append(jobs, j)
			s.publish(j)
			if n%2 == 1 {
				s.publish(contact(len(jobs)))
			}
		}
	}
	more()
	for n, table := range []string{"settle.tasks", "settle.task_events", "settle.tasks"} {
		more()
		s.awaitDone((n + 1) * quarter)
		s.exec(fmt.Sprintf("alter table %s add column added_%d text", table, n))
	}
	s.holds(jobs...)
	for _, j := range jobs {
		s.sent(j, 1, 1)
	}
	var rows, others int
	s.scan(`select (select count(*) from shop.contacts),
		(select count(*) from settle.tasks where status <> 'finished' or failures > 0 or attempts > 1)`, nil, &rows, &others)
	if rows != len(jobs)/2 || others != 0 || s.allEffects() != len(jobs) {
		t.Errorf("E=%d of %d jobs, %d contacts of %d; %d tasks did not go through at once", s.allEffects(), len(jobs), rows, len(jobs)/2, others)
	}
	t.Logf("%d deliveries of %d messages", deliveries(w), len(jobs)*3/2)
}

// awaitDone waits until so many tasks are finished; more are under way then.
func (s *stage) awaitDone(n int) {
	s.t.Helper()
	rig.Eventually(s.t, soon, fmt.Sprintf("%d tasks are finished", n), func() (there bool) {
		s.scan(`select count(*) >= $1 from settle.tasks where status = 'finished'`, []any{n}, &there)
		return there
	})
}

// contact is a job of contact.sync, which has no provider.
func contact(n int) job {
	return job{"contact.sync", fmt.Sprintf("crm_contact_%d//v1", n), fmt.Sprintf(`{"source_id":"%d","version":1,"name":"Ada","email":"ada@example.com"}`, n)}
}
