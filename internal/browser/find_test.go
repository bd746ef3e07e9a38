package browser

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// find types into the box what a customer gave, and presses Enter.
func (p *tab) find(text string) {
	p.t.Helper()
	// Not by chromedp's selectors: they do not find their way in a page that came back from the browser's memory.
	eval[chromedp.Void](p, `document.querySelector("#q").select()`)
	p.keys(kb.Backspace + text)
	p.enter()
}

// back goes back as the browser's button does. The page may come from the browser's memory, without being loaded.
func (p *tab) back(to string) {
	p.t.Helper()
	p.do("go back", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		history, err := chromedp.Call(ctx, page.GetNavigationHistory, cdp.Empty{})
		if err != nil {
			return err
		}
		before := history.Entries[history.CurrentIndex-1]
		_, err = chromedp.Call(ctx, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: before.ID})
		return err
	}))
	rig.Eventually(p.t, soon, "back at "+to, func() bool { return p.path() == to && eval[string](p, `document.readyState`) == "complete" })
}

// rows are the keys in the list of the page.
func (p *tab) rows() string {
	p.t.Helper()
	return eval[string](p, `[...document.querySelectorAll("main tbody th, main .hits a bdi")].map(cell => cell.innerText).join(" ")`)
}

// A support person has one box, and whatever the customer has in hand.
func (s *story) findsByEachReference(t *testing.T, p *tab) {
	task := s.crashed
	for text, wanted := range map[string]idemstore.Task{
		task.Key: task, chargeKind + "/" + task.Key: task, fmt.Sprint(task.TaskID): task, " " + task.Key + " ": task,
		"18454": s.declined, "c_declined": s.declined, s.long.ProviderKey: s.long,
	} {
		p.to("/")
		p.find(text)
		if got, want := p.path(), s.page(wanted); got != want {
			t.Errorf("by %q: at %s, want %s\n%s", text, got, want, p.reads())
		}
	}
	if s.long.ProviderKey == s.long.Key {
		t.Error("no task has a provider key of its own")
	}
	// The receipt of a charge has these in common with it.
	for name, text := range map[string]string{"order": "18452", "external reference": task.ExternalID, "trace id": traceID} {
		p.find(text)
		if rows := p.rows(); !strings.Contains(rows, task.Key) {
			t.Errorf("by %s: at %s, found %q", name, p.path(), rows)
		}
	}
	p.find("c_17")
	if rows := strings.Fields(p.rows()); len(rows) != 2 || !strings.Contains(strings.Join(rows, " "), task.Key) || !strings.Contains(strings.Join(rows, " "), s.plain.Key) {
		t.Errorf("by customer: %q", rows)
	}
}

func (s *story) findsTheBeginningAndNothing(t *testing.T, p *tab) {
	p.to("/")
	p.find("order_1846")
	p.shows("Nothing equals it; these begin with it.")
	if rows := p.rows(); rows != "order_18463 order_18462 order_18461 order_18460" && len(strings.Fields(rows)) != 4 {
		t.Errorf("begins with order_1846: %q", rows)
	}
	for _, text := range []string{"order_1999", "%", "_", "order_184%", `'; drop table settle.tasks; --`} {
		p.find(text)
		p.shows("Nothing has, or begins with, this.")
		if kept := eval[string](p, `document.querySelector("#q").value`); kept != text {
			t.Errorf("the box says %q, not %q", kept, text)
		}
	}
	p.find("")
	p.shows("Type what the customer gave you.")
}

// The sentence is what the customer hears.
func (s *story) answersTheCustomer(t *testing.T, p *tab) {
	for _, c := range []struct{ key, want string }{
		{s.crashed.Key, `^Charged once, 12\.00 EUR, charge ch_\w+, on \d+ \w+ \d{4} at [\d:]+ UTC; 2 attempts, 2 duplicates stopped\.$`},
		{s.plain.Key, `^Charged once, 12\.00 EUR, charge ch_\w+, on .* UTC; 1 attempt, \d duplicates? stopped\.$`},
		{s.declined.Key, `^Not charged, the provider refused it \(card_declined\), charge ch_\w+, on .* UTC; 1 attempt, 0 duplicates stopped\.$`},
		{s.unknown.Key, `^Not known yet whether it was charged; the provider is asked again, not before .* UTC\.$`},
		{s.review.Key, `^Not charged: its data contradict ours, or a record is missing; a person decides, and nothing is sent meanwhile\.$`},
		{s.twice.Key, `^It may have happened more than once, .*; a person decides, and nothing is sent meanwhile\.$`},
		{s.waiting.Key, `^Not charged yet; nothing was sent, and the next attempt starts not before .* UTC\.$`},
	} {
		p.to("/")
		p.find(chargeKind + "/" + c.key)
		if got := eval[string](p, `document.querySelector(".answer").innerText`); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s: %q, want %s", c.key, got, c.want)
		}
	}
}

// Whoever looks at one of several hits gets back to the others, with what he had typed still in the box.
func (s *story) goesBack(t *testing.T, p *tab) {
	p.to("/")
	p.find("c_17")
	p.leads("open a hit", chromedp.Click(fmt.Sprintf(`a[href=%q]`, s.page(s.crashed))))
	p.shows("Charged once", s.crashed.ExternalID)
	p.back("/find?q=c_17")
	if rows := p.rows(); len(strings.Fields(rows)) != 2 {
		t.Errorf("back from a hit, with %q", rows)
	}
	if kept := eval[string](p, `document.querySelector("#q").value`); kept != "c_17" {
		t.Errorf("the box says %q", kept)
	}
	p.find(s.plain.Key)
	p.back("/find?q=c_17")
	p.back("/")
}
