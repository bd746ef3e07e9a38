package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// workload is what waits for an operator, with a worker at it.
type workload struct {
	*stage
	worker *rig.Worker

	lost     idemstore.Task // no request arrived, and the provider cannot be asked
	late     idemstore.Task // charged, its answer lost, and the provider cannot be asked
	mistaken idemstore.Task // the order had another amount, which was corrected
	replaced idemstore.Task // its corrected message was refused as a conflict
	waiting  idemstore.Task // nothing was sent
}

// loadWork lets workers leave something for each act.
func loadWork(t *testing.T) *workload {
	t.Helper()
	s := &workload{stage: newStage(t, "")}
	s.settings = append(s.settings, "SETTLE_RECOVER_EVERY=1s")
	const never = "3600"
	s.faults(
		provider.Fault{Key: "order_2001", Count: 1, Close: provider.Before},
		provider.Fault{Key: "order_2001", Method: "GET", Status: 503, RetryAfter: never},
		provider.Fault{Key: "order_2004", Status: 429, RetryAfter: never},
		provider.Fault{Key: "order_2005", Count: 1, Close: provider.After},
		provider.Fault{Key: "order_2005", Method: "GET", Status: 503, RetryAfter: never},
	)
	s.exec(`insert into shop.orders (order_id, customer_id, amount, currency) values ('2002', 'c_2', 9900, 'EUR'), ('2003', 'c_2', 9900, 'EUR')`)
	s.worker = s.run("work")
	s.publish("jobs."+chargeKind, `{"order_id":"2000",`)
	for _, order := range []string{"2001", "2002", "2003", "2004", "2005"} {
		s.publish("jobs."+chargeKind, charge(order, "c_2", 1200))
	}
	waits := func(status idemstore.Status) func(idemstore.Task) bool {
		return func(t idemstore.Task) bool {
			return t.Status == status && t.LeaseUntil == nil && time.Until(t.NextAttemptAt) > time.Minute
		}
	}
	s.lost = s.reaches("order_2001", "unknown for long", waits(idemstore.Unknown))
	s.mistaken, s.replaced = s.becomes("order_2002", idemstore.NeedsReview), s.becomes("order_2003", idemstore.NeedsReview)
	s.waiting = s.reaches("order_2004", "waiting", waits(idemstore.Started))
	s.late = s.reaches("order_2005", "unknown for long", waits(idemstore.Unknown))
	s.publish("jobs."+chargeKind, charge("2003", "c_2", 9900))
	s.refused(2)
	s.faults() // the provider answers again
	s.exec(`update shop.orders set amount = 1200 where order_id = '2002'`)
	return s
}

// deed is one act as an operator does it: from the page that offers it, through its form.
type deed struct {
	act     string
	at      string   // the page that offers it
	form    string   // where its button leads
	foresee []string // what the form says would happen
	twice   bool     // a nervous finger
	says    []string // the page that comes of it
}

// Each act that asksTwice and resolvesByKeyboard leave, pressed in its form.
func TestActs(t *testing.T) {
	s := loadWork(t)
	olga := s.person("olga", "operator")
	p := open(t, startChromium(t), s.serve())
	p.sized(wide)
	p.signIn(olga)
	for _, c := range []struct {
		name string
		does func(*testing.T, *tab)
	}{
		{"note", s.notes}, {"cancel", s.cancels}, {"retry", s.retries}, {"supersede", s.supersedes}, {"send again", s.sendsAgain},
		{"republish", s.republishes}, {"pause, look-ups only, resume", s.pausesAndResumes}, {"recover", s.recovers},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			p.t = t
			c.does(t, p)
			p.quiet()
		}) {
			break
		}
	}
	p.t = t
}

// onTask is an act on a task.
func onTask(task idemstore.Task, act string, d deed) deed {
	d.act, d.at = act, fmt.Sprintf("/tasks/%d", task.TaskID)
	d.form = d.at + "/" + act
	return d
}

// presses does a deed: its form tells what would happen, is refused without a reason, and does it once.
func (s *workload) presses(p *tab, d deed) {
	p.t.Helper()
	if d.at != p.path() {
		p.to(d.at)
	}
	p.leads("choose "+d.act, chromedp.Click(fmt.Sprintf(`a.button[href=%q]`, d.form)))
	s.sends(p, d)
}

// sends fills in the form that is open.
func (s *workload) sends(p *tab, d deed) {
	p.t.Helper()
	p.shows(append(d.foresee, "What would happen")...)
	const button = "form.act button"
	p.do("press without a reason", chromedp.Click(button))
	if eval[bool](p, `document.querySelector("form.act").checkValidity()`) || !strings.HasPrefix(p.path(), d.form) {
		p.t.Errorf("%s is sent without a reason", d.form)
	}
	p.do("look at the reason", chromedp.Focus("#reason"))
	p.keys("  ")
	p.enter()
	p.shows("A reason is required")
	if said := p.troubles(); len(said) != 1 || !strings.Contains(said[0], "400 (Bad Request)") {
		p.t.Errorf("the browser complains of %q, not of the answer 400", said)
	}
	s.pressed(p.t, d, 0)

	eval[chromedp.Void](p, `document.querySelector("#reason").select()`)
	p.keys(kb.Backspace + d.reason())
	press := chromedp.Click(button)
	if d.twice {
		press = chromedp.DoubleClick(button)
	}
	p.do("press", press)
	p.comes(append(d.says, "Done.", "olga", d.reason())...)
	s.pressed(p.t, d, 1)
}

func (d deed) reason() string { return "why " + d.act }

// pressed counts how often a deed was done, and by whom.
func (s *workload) pressed(t *testing.T, d deed, want int) {
	t.Helper()
	s.counts(t, fmt.Sprintf("times %s was done", d.act), want,
		`select count(*) from settle.presses where act = $1 and actor like '%olga%' and reason = $2 and outcome = 'done'`, d.act, d.reason())
	s.counts(t, fmt.Sprintf("times %s was pressed", d.act), want, `select count(*) from settle.presses where act = $1`, d.act)
}

// counts compares a count of rows.
func (s *workload) counts(t *testing.T, what string, want int, sql string, arguments ...any) {
	t.Helper()
	var got int
	if err := s.pool.QueryRow(t.Context(), sql, arguments...).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// came checks what came of a task: the line in its history, and what the provider has been asked for and has done.
func (s *workload) came(t *testing.T, task idemstore.Task, act string, posts, charges int) {
	t.Helper()
	s.counts(t, "lines about "+act, 1, `select count(*) from settle.task_events where task_id = $1 and actor like '%olga%' and reason like '%why ' || $2 || '%'`, task.TaskID, act)
	s.counts(t, "requests of "+task.Key, posts, `select count(*) from provider.requests where key = $1 and method = 'POST'`, task.ProviderKey)
	s.counts(t, "charges of "+task.Key, charges, `select count(*) from provider.charges where idempotency_key = $1 and status = 'succeeded'`, task.ProviderKey)
}

func (s *workload) notes(t *testing.T, p *tab) {
	s.presses(p, onTask(s.waiting, "note", deed{foresee: []string{"history gets a line"}, says: []string{"Not charged yet"}}))
	s.came(t, s.waiting, "note", 1, 0)
	if now := s.becomes(s.waiting.Key, idemstore.Started); now.Attempt != s.waiting.Attempt {
		t.Errorf("a note made attempt %d", now.Attempt)
	}
}

func (s *workload) cancels(t *testing.T, p *tab) {
	s.presses(p, onTask(s.waiting, "cancel", deed{foresee: []string{"nothing was sent"}, says: []string{"Not charged"}}))
	s.becomes(s.waiting.Key, idemstore.Failed)
	s.came(t, s.waiting, "cancel", 1, 0)
	s.counts(t, "orders declined", 1, `select count(*) from shop.orders where order_id = '2004' and status = 'declined'`)
}

func (s *workload) retries(t *testing.T, p *tab) {
	s.presses(p, onTask(s.mistaken, "retry", deed{foresee: []string{"ttempt"}}))
	s.becomes(s.mistaken.Key, idemstore.Finished)
	s.came(t, s.mistaken, "retry", 1, 1)
	p.find(s.mistaken.Key)
	p.shows("Charged once, 12.00 EUR", "why retry")
}

func (s *workload) supersedes(t *testing.T, p *tab) {
	s.presses(p, onTask(s.replaced, "supersede", deed{foresee: []string{"Refusal 2", `"amount": 1200`, `"amount": 9900`}}))
	s.becomes(s.replaced.Key, idemstore.Finished)
	s.came(t, s.replaced, "supersede", 1, 1)
	p.find(s.replaced.Key)
	p.shows("Charged once, 99.00 EUR", "why supersede")
}

func (s *workload) sendsAgain(t *testing.T, p *tab) {
	s.presses(p, onTask(s.lost, "send-again", deed{foresee: []string{"asked"}, twice: true}))
	s.becomes(s.lost.Key, idemstore.Finished)
	s.came(t, s.lost, "send-again", 2, 1)
}

func (s *workload) republishes(t *testing.T, p *tab) {
	s.presses(p, deed{act: "republish", at: "/refusals/1", form: "/refusals/1/republish", foresee: []string{"It would be published again"}, twice: true,
		says: []string{"Published again", "cannot be read (malformed)"}})
	s.refused(3) // it is no better than before
	s.counts(t, "refusals that olga published again", 1, `select count(*) from settle.refusals where id = 1 and republished_by like '%olga%'`)
	if offered := eval[[]string](p, buttons); len(offered) > 0 {
		t.Errorf("what was published again is offered %q", offered)
	}
}

func (s *workload) pausesAndResumes(t *testing.T, p *tab) {
	for _, c := range []struct{ act, mode, foresee, says string }{
		{"pause", "paused", "take no more messages of this kind", "paused; nothing is taken, sent or asked"},
		{"keep-asking", "asking", "go on asking the provider", "paused; tasks whose outcome is unknown are still asked about"},
		{"resume", "running", "serve this kind again", "running"},
	} {
		s.presses(p, deed{act: c.act, at: "/kinds", form: "/kinds/" + chargeKind + "/" + c.act, foresee: []string{c.foresee}, says: []string{c.says}})
		s.counts(t, "controls", 1, `select count(*) from settle.controls where kind = $1 and mode = $2 and actor like '%olga%' and reason = $3`, chargeKind, c.mode, "why "+c.act)
	}
	s.publish("jobs."+chargeKind, charge("2006", "c_2", 1200))
	s.becomes("order_2006", idemstore.Finished)
}

// A set is narrowed, looked at and recovered, while no worker is there to do it.
func (s *workload) recovers(t *testing.T, p *tab) {
	s.drain(s.worker)
	s.exec(`update settle.tasks set next_attempt_at = clock_timestamp() where id = $1`, s.late.TaskID)
	w := &walk{tab: p}
	w.follows("Recover")
	p.do("look at the age", chromedp.Focus("#older_than"))
	eval[chromedp.Void](p, `document.querySelector("#older_than").select()`)
	p.keys(kb.Backspace + "0s")
	w.follows("Show what would happen")
	s.sends(p, deed{act: "recover", form: "/recover", foresee: []string{"1 would be asked about", s.late.Key}, says: []string{"1 settled."}})
	s.becomes(s.late.Key, idemstore.Finished)
	s.came(t, s.late, "recover", 1, 1)
}
