package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// openTerminal makes a pseudo-terminal: what is written to the one end is read from the other.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	var number, unlocked uint32
	for _, c := range []struct {
		request uintptr
		value   *uint32
	}{{syscall.TIOCGPTN, &number}, {syscall.TIOCSPTLCK, &unlocked}} {
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), c.request, uintptr(unsafe.Pointer(c.value))); failed != 0 {
			t.Fatal(failed)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	url, _ := devtest.JetStream(t)
	var text bytes.Buffer
	for i := range 500 {
		fmt.Fprintln(&text, charge(i))
	}
	for name, c := range map[string]struct {
		args  []string
		shows bool
	}{
		"text": {nil, true},
		"JSON": {[]string{"--json"}, false},
	} {
		screen, terminal := openTerminal(t)
		cmd := command(t, map[string]string{"NATS_URL": url}, append([]string{"publish", "--kind", "payment.charge"}, c.args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text.Bytes()), io.Discard, terminal
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		terminal.Close() // the program has it; the screen ends with it
		shown, _ := io.ReadAll(screen)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v, %s", name, err, shown)
		}
		if got := strings.Contains(string(shown), "lines"); got != c.shows || !c.shows && len(shown) > 0 {
			t.Errorf("%s: shown %q", name, shown)
		}
	}
	if code, _, errOut := runSettle(t, map[string]string{"NATS_URL": url}, &text, "publish", "--kind", "payment.charge"); code != exitDone || errOut != "" {
		t.Errorf("without a terminal: exit %d, %q", code, errOut)
	}
}
