package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// buttons are the addresses of what may be done on a page.
const buttons = `[...document.querySelectorAll("a.button")].map(a => a.getAttribute("href"))`

// Whoever only looks is offered nothing, and told so where he goes all the same.
func (s *story) offersViewersNothing(t *testing.T, p *tab) {
	for _, path := range []string{s.page(s.unknown), s.page(s.review), "/refusals/1", "/kinds"} {
		p.to(path)
		if offered := eval[[]string](p, buttons); len(offered) > 0 {
			t.Errorf("%s offers %q to a viewer", path, offered)
		}
	}
	p.to(s.page(s.unknown) + "/ask")
	p.shows("Only operators may change something.")
}

// An operator asks the provider with a nervous finger and decides by keyboard; each happens once, in his name.
func (s *story) operatorActs(t *testing.T, p *tab) {
	p.sized(wide)
	p.signIn(s.person("olga", "operator"))
	s.fitsWhatIsOffered(p)
	t.Run("ask", func(t *testing.T) { s.asksTwice(t, p) })
	t.Run("resolve", func(t *testing.T) { s.resolvesByKeyboard(t, p) })
	p.quiet()
}

// fitsWhatIsOffered looks at every form that the story offers.
func (s *story) fitsWhatIsOffered(p *tab) {
	p.t.Helper()
	forms := []string{"/recover"}
	for name, path := range map[string]string{"unknown": s.page(s.unknown), "review": s.page(s.review), "waiting": s.page(s.waiting),
		"refusal": "/refusals/1", "kinds": "/kinds"} {
		p.to(path)
		p.fits("operator-" + name)
		forms = append(forms, eval[[]string](p, buttons)...)
	}
	slices.Sort(forms)
	if len(forms) < 8 {
		p.t.Errorf("only %q are offered", forms)
	}
	for _, path := range forms {
		p.to(path)
		p.fits("act-" + strings.Trim(strings.Map(letters, path), "-"))
		p.visits(path)
		if eval[bool](p, `document.querySelector("form.act")?.checkValidity() ?? false`) {
			p.t.Errorf("%s can be sent without a reason", path)
		}
	}
}

func (s *story) asksTwice(t *testing.T, p *tab) {
	s.faults() // the provider answers again
	p.to("/")
	p.find(s.unknown.Key)
	p.leads("choose to ask", chromedp.Click(fmt.Sprintf(`a[href="%s/ask"]`, s.page(s.unknown))))
	p.shows("payment.charge", s.unknown.Key)
	p.do("give a reason", chromedp.Focus("#reason"), chromedp.KeyEvent("the customer is on the phone"))
	p.do("press twice", chromedp.DoubleClick("form.act button"))
	p.comes("Done.", "olga", "the customer is on the phone", "Charged once, 12.00 EUR")
	s.actedOnce(t, s.unknown, idemstore.Finished)
}

func (s *story) resolvesByKeyboard(t *testing.T, p *tab) {
	p.to(s.page(s.review))
	p.tabTo(fmt.Sprintf(`a[href="%s/resolve"]`, s.page(s.review)))
	p.enter()
	p.tabTo(`input[name="as"]`)
	p.keys(kb.ArrowDown) // the second choice
	if got := eval[string](p, `document.querySelector("input[name=as]:checked").value`); got != "failed" {
		t.Fatalf("the choice is %q", got)
	}
	p.tabTo("#reason")
	p.keys("the amount was agreed by mistake")
	p.enter()
	p.comes("Done.", "olga", "the amount was agreed by mistake", "Not charged")
	s.actedOnce(t, s.review, idemstore.Failed)
}

// comes waits for the sentence that says what came of an act, and for the rest of the page.
func (p *tab) comes(texts ...string) {
	p.t.Helper()
	rig.Eventually(p.t, soon, "the page says what came of it", func() bool {
		return eval[bool](p, `document.readyState === "complete" && document.querySelector(".came") !== null`)
	})
	p.shows(texts...)
	p.picture("came-" + strings.Trim(strings.Map(letters, eval[string](p, `location.pathname`)), "-"))
}

// actedOnce checks the row, its one event in the operator's name, and that there is still at most one effect.
func (s *story) actedOnce(t *testing.T, task idemstore.Task, want idemstore.Status) {
	t.Helper()
	s.becomes(task.Key, want)
	var events, effects int
	if err := s.pool.QueryRow(t.Context(), `select (select count(*) from settle.task_events where task_id = $1 and actor like '%olga%'),
		(select count(*) from provider.charges where idempotency_key = $2 and status = 'succeeded')`, task.TaskID, task.ProviderKey).Scan(&events, &effects); err != nil {
		t.Fatal(err)
	}
	if events != 1 || effects > 1 {
		t.Errorf("%s: %d events of olga and %d effects", task.Key, events, effects)
	}
}

// tabTo presses Tab until something has the focus.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range eval[int](p, stops) {
		p.keys(kb.Tab)
		if eval[bool](p, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
			return
		}
	}
	p.t.Fatalf("%s: Tab does not reach %s", p.path(), selector)
}
