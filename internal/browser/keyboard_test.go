package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// focused describes what has the focus: what it is, and what is wrong with how it is shown.
const focused = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return "nothing";
	const box = e.getBoundingClientRect(), style = getComputedStyle(e);
	const wrong = [];
	if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) wrong.push("without an outline");
	if (box.width < 1 || box.height < 1 || box.right <= 0 || box.bottom <= 0 || box.left >= innerWidth || box.top >= innerHeight) wrong.push("out of sight");
	return [e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + " " + (e.innerText || e.name || "").slice(0, 30).trim(), ...wrong].join(" | ");
})()`

// stops are the elements that Tab has to reach, in a page that nothing was done to.
const stops = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
	.filter(e => e.checkVisibility()).length`

func (s *story) worksByKeyboard(t *testing.T, p *tab) {
	p.to("/")
	p.keys(kb.Tab)
	if got := eval[string](p, focused); got != "a Skip to the content" {
		t.Errorf("the first stop is %q, want the link that skips the navigation", got)
	}
	p.keys(kb.Enter)
	if got := eval[string](p, `document.activeElement.id`); got != "content" {
		t.Errorf("the skip link leads to %q", got)
	}

	p.to("/")
	p.keys(kb.Tab + kb.Tab + kb.Tab + s.crashed.Key)
	p.enter()
	p.shows("Charged once")
	for _, path := range []string{"/", "/find?q=c_17", p.path(), "/lists/review", "/lists/refusals", "/kinds"} {
		p.to(path)
		p.visits(path)
	}
	p.quiet()
}

// visits goes through the page with Tab: every stop is in sight and marked, and none holds the focus.
func (p *tab) visits(path string) {
	p.t.Helper()
	want := eval[int](p, stops)
	for range want {
		p.keys(kb.Tab)
		if got := eval[string](p, focused); strings.Contains(got, " | ") || got == "nothing" {
			p.t.Errorf("%s: the focus is on %s", path, got)
		}
	}
	last := eval[string](p, focused)
	p.keys(kb.Tab)
	if got := eval[string](p, focused); got != "nothing" && got != "a Skip to the content" {
		p.t.Errorf("%s: after %d stops, the last of them %s, comes %s", path, want, last, got)
	}
}
