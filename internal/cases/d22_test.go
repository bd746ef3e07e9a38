package cases

import (
	"fmt"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
)

// Postgres aborts a transaction of ours with a deadlock or a serialization failure: the statements are run again,
// the effect is not.
func TestD22OnlySQLIsRetried(t *testing.T) {
	t.Parallel()
	places := map[string]struct {
		trigger string
		faults  []provider.Fault
		w       int // and attempts
	}{
		"claim":     {`before insert on settle.tasks for each row`, nil, 1},
		"result":    {`before update on settle.tasks for each row when (new.status = 'finished')`, nil, 1},
		"take-over": {`before update on settle.tasks for each row when (old.status = 'unknown')`, []provider.Fault{{Status: 503, Count: 1}}, 2},
	}
	for _, state := range []string{"40001", "40P01"} {
		for place, c := range places {
			t.Run(place+" "+state, func(t *testing.T) {
				t.Parallel()
				s := newCalmStage(t)
				s.raiseOnce(c.trigger, state)
				s.faults(c.faults...)
				worker := s.serve(referenceKinds)
				j := charge("1")
				s.publish(j)
				s.awaitStatus(j, idemstore.Finished)
				s.holds(j)
				s.sent(j, c.w, c.w)
				var passages int
				s.scan(`select last_value from public.passages`, nil, &passages)
				if passages != 2 {
					t.Errorf("the transaction came to the trigger %d times, want twice", passages)
				}
				if n := deliveries(worker); n != c.w {
					t.Errorf("%d deliveries for %d attempts", n, c.w)
				}
			})
		}
	}
}

// raiseOnce makes the first statement that fires the trigger fail with an SQLSTATE. The sequence counts on although
// its transaction is rolled back.
func (s *stage) raiseOnce(trigger, state string) {
	s.t.Helper()
	s.exec(`create sequence public.passages`)
	s.exec(fmt.Sprintf(`create function public.raise_once() returns trigger language plpgsql as $$
		begin
			if nextval('public.passages') = 1 then
				raise exception 'forced by the test' using errcode = '%s';
			end if;
			return new;
		end $$`, state))
	s.exec(`create trigger forced ` + trigger + ` execute function public.raise_once()`)
}
