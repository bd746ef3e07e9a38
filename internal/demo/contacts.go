package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	newestVersion  = 3  // of each contact: one event per version
	jobsPerContact = 6  // other jobs for each contact
	firstContact   = 42 // source id
)

// contactEvents are the events of n contacts, in any order, some more than once.
func contactEvents(r *rand.Rand, n int) (jobs []job) {
	for source := firstContact; source < firstContact+n; source++ {
		for version := 1; version <= newestVersion; version++ {
			event := fmt.Sprintf("evt_%d", 10*source+version)
			jobs = append(jobs, job{kind: contactKind, key: fmt.Sprintf("crm_contact_%d/%s", source, event), id: fmt.Sprintf("%d/%s", source, event),
				body: fmt.Sprintf(`{"source_id":"%d","event_id":%q,"version":%d,"name":"Name %d","email":"c%d@example.com"}`,
					source, event, version, version, source),
				repeat: aRepeat(r)})
		}
	}
	r.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	return jobs
}

// contactOf is the source id of an event's contact.
func (j job) contactOf() string {
	source, _, _ := strings.Cut(j.id, "/")
	return source
}

// recorded counts how often each contact event is recorded.
const recorded = `select 'contact.sync', source_id || '/' || event_id, count(*)::int from shop.import_events group by 2`

// oldContacts are the contacts that do not show their newest event, and what they show.
func (s *stage) oldContacts(ctx context.Context, jobs []job) (map[string]string, error) {
	old := map[string]string{}
	for _, j := range jobs {
		if j.kind == contactKind {
			old[j.contactOf()] = "is not there"
		}
	}
	rows, err := s.tasks.Query(ctx, `select source_id, version, name from shop.contacts`)
	if err != nil {
		return nil, err
	}
	var (
		source, name string
		version      int
	)
	_, err = pgx.ForEachRow(rows, []any{&source, &version, &name}, func() error {
		delete(old, source)
		if version != newestVersion || name != "Name "+strconv.Itoa(newestVersion) {
			old[source] = fmt.Sprintf("ended at version %d (%q), not at %d", version, name, newestVersion)
		}
		return nil
	})
	return old, err
}

// contactFaults are the contacts that did not end as their newest event says.
func (s *stage) contactFaults(ctx context.Context, jobs []job) (faults []fault, err error) {
	old, err := s.oldContacts(ctx, jobs)
	for source, what := range old {
		faults = append(faults, fault{"contact " + source, what})
	}
	return faults, err
}

// contactReport is how many contacts show their newest event, and how many events came too late.
func (s *stage) contactReport(ctx context.Context, jobs []job) (current, stale int, err error) {
	old, err := s.oldContacts(ctx, jobs)
	if err != nil {
		return 0, 0, err
	}
	all := map[string]bool{}
	for _, j := range jobs {
		if j.kind == contactKind {
			all[j.contactOf()] = true
		}
	}
	err = s.tasks.QueryRow(ctx, `select count(*) from shop.import_events where result = 'stale'`).Scan(&stale)
	return len(all) - len(old), stale, err
}
