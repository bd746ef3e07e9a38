package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/settlemq/settle/internal/rig"
)

// startChromium starts a browser that has never been anywhere. It ends with the test, and nothing of it is left.
func startChromium(t *testing.T) context.Context {
	t.Helper()
	binary := findChromium(t)
	// Not t.TempDir(): a browser that has just ended may still write there, and the test says itself when it is over.
	profile, err := os.MkdirTemp("", "settle-browser") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(binary), chromedp.UserDataDir(profile),
		chromedp.NoSandbox, // refused to root, and in many containers to others; only our own pages are opened
		chromedp.DisableGPU, chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true))
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	browser, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(browser); err != nil {
			t.Errorf("end Chromium: %v", err)
		}
		free()
		rig.Eventually(t, soon, "no process of Chromium is left", func() bool { return !runs(profile) })
		rig.Eventually(t, soon, "its files are removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return browser
}

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is missing; run: apt-get install --no-install-recommends chromium")
	return ""
}

// runs reports whether a process has the text in its command line. It sees none where there is no /proc.
func runs(text string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(files, func(file string) bool {
		line, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(line), text)
	})
}

// tab is a page as a person has it before him. Whatever the browser complains about is kept.
type tab struct {
	t    *testing.T
	ctx  context.Context
	home string // where addresses without a host lead

	mu      sync.Mutex
	at      string // where it was last sent
	trouble []string
}

// open opens another tab. It is closed with the test.
func open(t *testing.T, browser context.Context, home string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, options...)
	var dialogs sync.WaitGroup
	p := &tab{t: t, ctx: ctx, home: home}
	t.Cleanup(func() { closeTab(); dialogs.Wait() })
	err := chromedp.Listen(ctx, func(event any) {
		p.notice(event)
		if _, opened := event.(*page.EventJavascriptDialogOpening); opened {
			dialogs.Go(func() { // a page with an open dialog stands still
				_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
			})
		}
	})
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	return p
}

// notice keeps what must not happen: errors and messages in the console, what the content security policy stops, dialogs.
func (p *tab) notice(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		// The browser complains about a page that is answered with an error. Whether it should be is the test's business.
		if e.Entry.Source != log.EntrySourceNetwork || e.Entry.URL != p.at {
			p.trouble = append(p.trouble, fmt.Sprintf("%s: %s: %s %s", p.at, e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		p.trouble = append(p.trouble, fmt.Sprintf("%s: console.%s", p.at, e.Type))
	case *runtime.EventExceptionThrown:
		p.trouble = append(p.trouble, fmt.Sprintf("%s: exception: %s", p.at, e.ExceptionDetails.Text))
	case *page.EventJavascriptDialogOpening:
		p.trouble = append(p.trouble, fmt.Sprintf("%s: a dialog says %q", p.at, e.Message))
	}
}

// troubles are what was noticed since the last time.
func (p *tab) troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.trouble
	p.trouble = nil
	return found
}

// quiet fails the test if the browser had anything to complain about.
func (p *tab) quiet() {
	p.t.Helper()
	for _, found := range p.troubles() {
		p.t.Error(found)
	}
}

// within bounds one thing that is done in a tab.
func (p *tab) within() (context.Context, context.CancelFunc) { return context.WithTimeout(p.ctx, soon) }

// do does something.
func (p *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// leads does something that leads to another page, and waits for that.
func (p *tab) leads(what string, step chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.WaitEvent(page.LoadEventFired, nil, step)); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// to goes to an address.
func (p *tab) to(path string) {
	p.t.Helper()
	p.mu.Lock()
	p.at = p.home + path
	p.mu.Unlock()
	p.do("go to "+path, chromedp.Navigate(p.home+path))
}

// keys presses keys, one after the other, wherever the focus is.
func (p *tab) keys(keys string) {
	p.t.Helper()
	p.do("press keys", chromedp.KeyEvent(keys))
}

// enter presses Enter, which leads to another page.
func (p *tab) enter() {
	p.t.Helper()
	p.leads("press Enter", chromedp.KeyEvent(kb.Enter))
}

// eval is the value of an expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// path is where the tab is, without the host.
func (p *tab) path() string {
	p.t.Helper()
	return eval[string](p, `location.pathname + location.search`)
}

// reads is what a person reads on the page, with everything unfolded.
func (p *tab) reads() string {
	p.t.Helper()
	return eval[string](p, `document.querySelectorAll("details").forEach(d => d.open = true), document.body.innerText`)
}

// shows fails the test if the page does not show a text.
func (p *tab) shows(texts ...string) {
	p.t.Helper()
	read := p.reads()
	for _, text := range texts {
		if !strings.Contains(read, text) {
			p.t.Errorf("%s does not show %q:\n%s", p.path(), text, read)
		}
	}
}

// sized gives the tab the width of a window.
func (p *tab) sized(width int64) {
	p.t.Helper()
	p.do("change the width", chromedp.EmulateViewport(width, 800))
}

// themed gives the tab the theme that a person prefers: light or dark.
func (p *tab) themed(theme string) {
	p.t.Helper()
	p.do("prefer "+theme, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		return err
	}))
}

// scriptless keeps pages from running scripts.
func (p *tab) scriptless() {
	p.t.Helper()
	p.do("disable JavaScript", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
}

// signIn signs in as a person does, by keyboard: the box for the name has the focus.
func (p *tab) signIn(who person) {
	p.t.Helper()
	p.to("/")
	if !strings.HasPrefix(p.path(), "/sign-in") {
		p.t.Fatalf("nobody is asked who they are: %s", p.path())
	}
	rig.Eventually(p.t, soon, "the box for the name has the focus", func() bool { return eval[string](p, `document.activeElement.id`) == "name" })
	p.keys(who.name + kb.Tab + who.password)
	p.enter()
	if p.path() != "/" {
		p.t.Fatalf("signed in, and at %s:\n%s", p.path(), p.reads())
	}
}
