package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/settlemq/settle/idemstore"
)

// walk is what somebody does who never saw the screen: they sign in, read, follow what the page offers by its words, and type
// what they were given. Addresses are never typed. Steps are counted as a person would: a click, a text that is typed, Enter.
type walk struct {
	*tab
	name  string
	steps int
	began time.Time
}

// longestWalk is how long a walk may take, from the page that asks who it is to the answer.
const longestWalk = time.Minute

// walks are the five questions that the screen is for, each from a cold start.
func (s *story) walks(t *testing.T, chromium context.Context) {
	otto := s.person("otto", "operator")
	for _, c := range []struct {
		name string
		most int // steps, with the three of signing in
		who  person
		does func(*walk)
	}{
		{"was it charged twice", 5, s.ann, s.wasItChargedTwice},
		{"why does it wait", 5, s.ann, s.whyDoesItWait},
		{"find the job of an external id", 6, s.ann, s.whoseIsTheCharge},
		{"which refusals came today", 5, s.ann, s.whatWasRefused},
		{"close what the provider confirms", 8, otto, s.closesTheUnknown},
		{"close what a person decides", 9, otto, s.closesTheReview},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &walk{tab: open(t, chromium, s.url, chromedp.WithNewBrowserContext()), name: c.name}
			w.sized(wide)
			w.to("/") // the bookmark that everybody is given
			w.began = time.Now()
			w.introduce(c.who)
			c.does(w)
			took := time.Since(w.began)
			w.picture("walk-" + strings.Map(letters, c.name))
			t.Logf("%d steps, %.1f s", w.steps, took.Seconds())
			if w.steps > c.most || took > longestWalk {
				t.Errorf("%d steps in %s, want at most %d in %s", w.steps, took, c.most, longestWalk)
			}
			w.quiet()
		})
	}
}

// introduce signs in on the page that is there.
func (w *walk) introduce(who person) {
	w.t.Helper()
	w.types("Name", who.name)
	w.types("Password", who.password)
	w.presses(kb.Enter)
	w.t.Logf("%s signed in", who.name)
}

// types fills in the box with a label.
func (w *walk) types(label, text string) {
	w.t.Helper()
	w.points("label, legend", label)
	w.steps++
	w.keys(text)
}

// presses hits Enter, or another key that leads on.
func (w *walk) presses(key string) {
	w.t.Helper()
	w.steps++
	w.leads("press a key", chromedp.KeyEvent(key))
}

// searches types what the customer gave into the box.
func (w *walk) searches(text string) {
	w.t.Helper()
	w.types("Customer, order, reference", text)
	w.presses(kb.Enter)
}

// follows clicks on the link or button that begins with these words.
func (w *walk) follows(words string) {
	w.t.Helper()
	w.steps++
	w.marks("a, button", words)
	w.leads("follow "+words, chromedp.Click("[data-walk]"))
}

// chooses clicks on a choice by its words.
func (w *walk) chooses(words string) {
	w.t.Helper()
	w.steps++
	w.points("label", words)
}

// points clicks on what begins with these words, without going anywhere.
func (w *walk) points(among, words string) {
	w.t.Helper()
	w.marks(among, words)
	w.do("click on "+words, chromedp.Click("[data-walk]"))
}

// marks finds the one thing in sight whose words begin so. A person who finds none, or two that lead to different places, is
// lost.
func (w *walk) marks(among, words string) {
	w.t.Helper()
	found := eval[[]string](w.tab, fmt.Sprintf(`(() => {
		document.querySelectorAll("[data-walk]").forEach(e => e.removeAttribute("data-walk"));
		const found = [...document.querySelectorAll(%q)].filter(e => e.checkVisibility() && e.innerText.trim().startsWith(%q));
		found[0]?.setAttribute("data-walk", "");
		return [...new Set(found.map(e => e.innerText.trim() + " " + (e.getAttribute("href") ?? "")))];
	})()`, among, words))
	if len(found) != 1 {
		w.t.Fatalf("%s offers %q where somebody looks for %q:\n%s", w.path(), found, words, w.reads())
	}
}

// tells fails the walk unless the page says it without anything being unfolded.
func (w *walk) tells(texts ...string) {
	w.t.Helper()
	read := eval[string](w.tab, `document.querySelector("main").innerText`)
	for _, text := range texts {
		if !strings.Contains(read, text) {
			w.t.Errorf("%s does not say %q in plain sight:\n%s", w.path(), text, read)
		}
	}
}

// first is the sentence that stands at the top.
func (w *walk) first() string {
	w.t.Helper()
	return eval[string](w.tab, `document.querySelector("main .answer").innerText`)
}

// The customer has an order. The charge and its receipt both have it; the first sentence is about the money.
func (s *story) wasItChargedTwice(w *walk) {
	w.searches("18452")
	if got := w.first(); !strings.HasPrefix(got, "Charged once, 12.00 EUR, charge "+s.crashed.ExternalID) || !strings.HasSuffix(got, "2 duplicates stopped.") {
		w.t.Errorf("the first sentence is %q", got)
	}
}

func (s *story) whyDoesItWait(w *walk) {
	w.searches("18463")
	w.tells("Not charged yet", "Why it waits", "The provider takes no more requests for now", "The next attempt comes by itself, in 5")
}

func (s *story) whoseIsTheCharge(w *walk) {
	w.searches(s.crashed.ExternalID)
	if got := eval[string](w.tab, `document.querySelector(".hits li").innerText`); !strings.Contains(got, s.crashed.Key) || !strings.Contains(got, "external reference "+s.crashed.ExternalID) {
		w.t.Errorf("the first hit is %q", got)
	}
	w.follows(chargeKind + " " + s.crashed.Key)
	w.tells("Charged once", s.crashed.ExternalID, `"customer_id": "c_17"`)
}

func (s *story) whatWasRefused(w *walk) {
	w.follows("Refusals")
	w.tells("Refused in the last day", "cannot be read (malformed): 1", "its key has other content (conflict): 1", "body ends inside the object", s.plain.Key)
	w.follows("Refusal 2")
	w.tells("The message", `"amount": 9900`, "The job of the task that has its key", `"amount": 1200`)
}

// The provider has it and answers again.
func (s *story) closesTheUnknown(w *walk) {
	s.faults()
	w.searches("18460")
	w.tells("Not known yet whether it was charged", "Why it waits", "The provider was asked what became of it, and could not tell.", "The provider is asked again by itself, in 5")
	w.follows("Ask the provider now")
	w.types("Why, for the history", "the customer is on the phone")
	w.presses(kb.Enter)
	w.comes("Done.", "Charged once, 12.00 EUR")
	s.becomes(s.unknown.Key, idemstore.Finished)
}

// Ours and the shop's amount differ. Nobody but a person can say what is right; they found it in the list.
func (s *story) closesTheReview(w *walk) {
	w.follows("Needs review")
	w.follows(s.review.Key)
	w.tells("Not charged", "a person decides", "amount differs from the order")
	w.follows("Resolve")
	w.chooses("failed: it did not happen")
	w.types("Why, for the history", "the amount was agreed by mistake")
	w.presses(kb.Enter)
	w.comes("Done.", "Not charged")
	s.becomes(s.review.Key, idemstore.Failed)
}
