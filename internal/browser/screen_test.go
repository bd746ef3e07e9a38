package browser

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/settlemq/settle/internal/rig"
)

// One story, and all that a person does with the screen after it.
func TestScreen(t *testing.T) {
	s := tell(t)
	chromium := startChromium(t)
	first := open(t, chromium, s.url)
	first.to("/")
	first.fits("sign-in")
	first.signIn(s.ann)
	first.quiet()
	for _, part := range []struct {
		name string
		walk func(*testing.T, *tab)
	}{
		{"find by each reference", s.findsByEachReference},
		{"find the beginning and nothing", s.findsTheBeginningAndNothing},
		{"answer the customer", s.answersTheCustomer},
		{"back", s.goesBack},
		{"narrow and wide, light and dark", s.fitsEverywhere},
		{"keyboard", s.worksByKeyboard},
		{"refresh by itself", s.refreshesItself},
		{"nothing for viewers to press", s.offersViewersNothing},
		{"without JavaScript", s.worksWithoutScripts}, // last: it signs out
	} {
		t.Run(part.name, func(t *testing.T) {
			p := open(t, chromium, s.url)
			p.sized(wide)
			part.walk(t, p)
			p.quiet()
		})
	}
	t.Run("an operator acts", func(t *testing.T) {
		s.operatorActs(t, open(t, chromium, s.url, chromedp.WithNewBrowserContext()))
	})
}

// The questions that people come with, by people who never saw the screen.
func TestWalks(t *testing.T) {
	s := tell(t)
	s.walks(t, startChromium(t))
}

// What changes in the database appears on an open overview, which is not loaded again.
func (s *story) refreshesItself(t *testing.T, p *tab) {
	p.to("/")
	const parked = `document.querySelector('a[href="/lists/review?kind=payment.charge"]').innerText`
	if before := eval[string](p, parked); before[:2] != "2," {
		t.Fatalf("before: %q", before)
	}
	eval[int](p, `window.loadedOnce = 1`)
	s.exec(`insert into shop.orders (order_id, customer_id, amount, currency) values ('18465', 'c_21', 100, 'EUR')`)
	s.publish("jobs."+chargeKind, charge("18465", "c_21", 1200))
	rig.Eventually(t, soon, "the overview counts three", func() bool { return eval[string](p, parked)[:2] == "3," })
	if eval[int](p, `window.loadedOnce ?? 0`) != 1 {
		t.Error("the page was loaded again")
	}
}
