package browser

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/settlemq/settle/idemstore"
)

const (
	narrow = 360 // the narrowest phone that people have, in CSS pixels
	wide   = 1100
)

// screens is where pictures are kept, for people.
const screens = "../../bin/screens"

// page is the address of a task.
func (s *story) page(task idemstore.Task) string { return fmt.Sprintf("/tasks/%d", task.TaskID) }

// pages are all there are, by the name of their picture.
func (s *story) pages() map[string]string {
	return map[string]string{
		"overview": "/", "find": "/find?q=c_17", "find-prefix": "/find?q=order_1", "find-none": "/find?q=order_1999", "find-empty": "/find",
		"task-finished": s.page(s.crashed), "task-failed": s.page(s.declined), "task-unknown": s.page(s.unknown),
		"task-review": s.page(s.review), "task-twice": s.page(s.twice), "task-waiting": s.page(s.waiting),
		"task-refused": s.page(s.plain),
		"list-review":  "/lists/review", "list-unknown": "/lists/unknown", "list-failed": "/lists/failed?kind=" + chargeKind + "&within=1h",
		"list-long": "/lists/long", "list-refusals": "/lists/refusals", "list-strays": "/lists/strays", "list-outbox": "/lists/outbox",
		"refusal": "/refusals/1", "refusal-conflict": "/refusals/2", "kinds": "/kinds",
		"problem-page": "/nowhere", "problem-task": "/tasks/999999", "problem-search": "/find?q=" + strings.Repeat("x", 600),
	}
}

// Every page fits a phone, in both themes, and the browser has nothing to complain about.
func (s *story) fitsEverywhere(t *testing.T, p *tab) {
	pages := s.pages()
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		p.to(pages[name])
		p.fits(name)
	}
	p.quiet()
}

// fits looks at the page in both widths and themes, and keeps a picture of each.
func (p *tab) fits(name string) {
	p.t.Helper()
	for _, width := range []int64{wide, narrow} {
		p.sized(width)
		if over := eval[string](p, tooWide); over != "" {
			p.t.Errorf("%s scrolls sideways at %d pixels because of %s", name, width, over)
		}
		if hidden := eval[int](p, hiddenBeside); width == narrow && hidden > 0 {
			p.t.Errorf("%s has %d tables that have to be pushed sideways", name, hidden)
		}
		for _, theme := range []string{"light", "dark"} {
			p.themed(theme)
			if got := eval[string](p, paper); theme == "light" && got != "light" || theme == "dark" && got != "dark" {
				p.t.Errorf("%s has a %s page in the theme %s", name, got, theme)
			}
			p.picture(fmt.Sprintf("%s-%s-%d", name, theme, width))
		}
	}
}

// tooWide names the first element that makes the document scroll sideways; empty if none does.
const tooWide = `document.documentElement.scrollWidth <= window.innerWidth ? "" :
	[...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > window.innerWidth)
		.filter(e => { const frame = e.closest(".wide"); return !frame || frame === e || getComputedStyle(frame).overflowX === "visible"; })
		.map(e => e.outerHTML.slice(0, 200))[0] ?? "the document"`

// hiddenBeside counts the tables of which a part is out of sight.
const hiddenBeside = `[...document.querySelectorAll(".wide")].filter(e => e.scrollWidth > e.clientWidth).length`

// paper is whether the page is light or dark: its background against its text.
const paper = `(() => {
	const light = colour => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
	const style = getComputedStyle(document.body);
	return light(style.backgroundColor) > light(style.color) ? "light" : "dark";
})()`

// picture keeps a picture of the whole page.
func (p *tab) picture(name string) {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatalf("take a picture of %s: %v", name, err)
	}
	if _, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil {
		p.t.Errorf("the picture of %s: %v", name, err)
	}
	if err := emptied(); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(screens, name+".png"), picture, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// emptied makes the folder of the pictures, without those of an earlier run.
var emptied = sync.OnceValue(func() error {
	return errors.Join(os.RemoveAll(screens), os.MkdirAll(screens, 0o700))
})

// Without JavaScript nothing is missing: signing in, finding, every page, and the link that refreshes the overview.
func (s *story) worksWithoutScripts(t *testing.T, p *tab) {
	p.scriptless()
	p.do("see that scripts do not run", chromedp.Navigate(`data:text/html,<title>not run</title><script>document.title = "run"</script>`))
	if got := eval[string](p, `document.title`); got != "not run" {
		t.Fatal("a script runs")
	}
	p.to("/")
	p.leads("sign out", chromedp.Click(`form[action="/sign-out"] button`))
	p.signIn(s.ann)
	p.find(s.crashed.Key)
	p.shows("Charged once")
	for name, path := range s.pages() {
		p.to(path)
		if title := eval[string](p, `document.querySelector("h1").innerText`); title == "" {
			t.Errorf("%s has no title", name)
		}
	}
	p.to("/lists/failed")
	p.leads("filter a list", chromedp.Click(`.filter button`))
	p.shows(s.declined.Key)
	p.to("/")
	p.leads("refresh", chromedp.Click(`.note a[href="/"]`))
	p.shows("What is not over", chargeKind)
	if drawn := eval[int](p, `document.querySelectorAll("figure rect").length`); drawn < 8 {
		t.Errorf("the charts of an hour and a day have %d parts, not one for each of four ends", drawn)
	}
	p.to("/") // folded, as it comes
	p.do("unfold the bars of the last hour", chromedp.Click(`details summary`))
	if seen := eval[bool](p, `document.querySelector("details table").checkVisibility()`); !seen {
		t.Error("the bars are not told as a table")
	}
	p.quiet()
}
