package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// anyLanguage is the page for those who publish without this module. Its blocks are executed, in their order.
const anyLanguage = "../../docs/any-language.md"

// TestPublishingFromAnyLanguage does what the page says, with nothing but a socket, a shell and SQL, against a real server and
// a real worker, and compares what comes back.
func TestPublishingFromAnyLanguage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(anyLanguage)
	if err != nil {
		t.Fatal(err)
	}
	env := servers(t)
	env["SETTLE_BACKOFF_MIN"] = "10ms"
	start(t, env, "work").await(`"msg":"serving"`)
	w := dial(t, env["NATS_URL"])
	blocks := regexp.MustCompile("(?s)\n```(\\S*)\n(.*?)\n```\n").FindAllStringSubmatch(string(page), -1)
	done := map[string]int{}
	for _, b := range blocks {
		done[b[1]]++
		switch b[1] {
		case "nats":
			w.play(b[2])
		case "sql":
			runSQL(t, env["DATABASE_URL"], b[2])
		case "console":
			runConsole(t, env, b[2])
		default:
			t.Errorf("nobody executes a block of %q:\n%s", b[1], b[2])
		}
	}
	if done["nats"] < 9 || done["sql"] < 2 || done["console"] < 1 {
		t.Errorf("executed %v", done)
	}
	for order, n := range map[string]int{"18452": 1, "18453": 0, "18454": 1, "18455": 1} {
		execute(t, env["DATABASE_URL"], fmt.Sprintf(`do $$ begin
			assert %d = (select count(*) from provider.charges where order_id = '%s'), 'charges of order %[2]s'; end $$`, n, order))
	}
}

// The message ids of the page are what it says they are made of.
func TestMessageIDsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(anyLanguage)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)Nats-Msg-Id: payment\.charge/order_(\d+)/([0-9a-f]{16})\n.*?\nC:\nC: (\{"order_id":"(\d+)".*?\})\n`).FindAllStringSubmatch(string(page), -1)
	if len(found) != 4 {
		t.Errorf("%d message ids", len(found))
	}
	for _, m := range found {
		sum := sha256.Sum256([]byte(m[3]))
		if m[1] != m[4] || hex.EncodeToString(sum[:8]) != m[2] {
			t.Errorf("%s has the id of order %s, %s", m[3], m[1], m[2])
		}
	}
}

// wire is a connection on which the protocol is spoken by hand.
type wire struct {
	t     *testing.T
	conn  net.Conn
	r     *bufio.Reader
	early [][]string // what came before the page speaks of it
}

func dial(t *testing.T, url string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t: t, conn: conn, r: bufio.NewReader(conn)}
}

// says sends lines.
func (w *wire) says(lines ...string) {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		w.t.Fatal(err)
	}
}

// hears reads what the server says next, as lines: one, or that of a message, its headers and its body.
func (w *wire) hears() []string {
	w.t.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	for {
		line, err := w.r.ReadString('\n')
		if err != nil {
			w.t.Fatalf("the server says nothing more: %v", err)
		}
		line = strings.TrimRight(line, " \r\n")
		words := strings.Fields(line)
		switch {
		case line == "PING":
			w.says("PONG")
			continue
		case strings.HasPrefix(line, "-ERR"):
			w.t.Fatal(line)
		case words[0] != "MSG" && words[0] != "HMSG":
			return []string{line}
		}
		size, err := strconv.Atoi(words[len(words)-1])
		if err != nil {
			w.t.Fatal(err)
		}
		content := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(w.r, content); err != nil {
			w.t.Fatal(err)
		}
		frame := append([]string{line}, strings.Split(string(content[:size]), "\r\n")...)
		if words[0] == "HMSG" { // the server's and the worker's headers come in any order
			slices.Sort(frame[2:slices.Index(frame, "")])
		}
		return frame
	}
}

// about is what the server says about the same thing as a line: INFO, PONG, or a message to a subject.
func (w *wire) about(first string) []string {
	w.t.Helper()
	alike := func(frame []string) bool {
		got, want := strings.Fields(frame[0]), strings.Fields(first)
		return got[0] == want[0] && (got[0] == "INFO" || got[0] == "PONG" || got[1] == want[1])
	}
	if i := slices.IndexFunc(w.early, alike); i >= 0 {
		frame := w.early[i]
		w.early = slices.Delete(w.early, i, i+1)
		return frame
	}
	for {
		frame := w.hears()
		if alike(frame) {
			return frame
		}
		w.early = append(w.early, frame)
	}
}

// play speaks the client's lines of a block and compares those of the server.
func (w *wire) play(block string) {
	w.t.Helper()
	starts := regexp.MustCompile(`^(INFO|PONG|MSG|HMSG)\b`)
	var mine, theirs []string
	flush := func() {
		w.t.Helper()
		if len(theirs) > 0 {
			w.expect(theirs)
		}
		theirs = nil
	}
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		who, text, _ := strings.Cut(line, ":")
		text = strings.TrimPrefix(text, " ")
		if who == "C" {
			flush()
			mine = append(mine, text)
			continue
		}
		if len(mine) > 0 {
			w.says(mine...)
			mine = nil
		}
		if starts.MatchString(text) {
			flush()
		}
		theirs = append(theirs, text)
	}
	flush()
}

func (w *wire) expect(lines []string) {
	w.t.Helper()
	if got := w.about(lines[0]); !likePage(lines).MatchString(strings.Join(got, "\n")) {
		w.t.Errorf("the page says\n%s\n\nthe server says\n%s", strings.Join(lines, "\n"), strings.Join(got, "\n"))
	}
}

// likePage is lines in which … stands for anything: within a line, or for any number of lines.
func likePage(lines []string) *regexp.Regexp {
	pattern := ""
	for i, line := range lines {
		if line == "…" {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")
		if i < len(lines)-1 {
			pattern += "\n"
		}
	}
	return regexp.MustCompile(`\A` + pattern + `\z`)
}

// runSQL executes a block and compares the last result with what its comments say.
func runSQL(t *testing.T, url, block string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	results, err := conn.PgConn().Exec(t.Context(), block).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, block)
	}
	var got, want []string
	for _, row := range results[len(results)-1].Rows {
		var values []string
		for _, v := range row {
			values = append(values, string(v))
		}
		got = append(got, strings.Join(values, " | "))
	}
	for line := range strings.Lines(block) {
		if text, ok := strings.CutPrefix(line, "-- "); ok {
			want = append(want, strings.TrimRight(text, "\n"))
		}
	}
	if !likePage(want).MatchString(strings.Join(got, "\n")) {
		t.Errorf("%s\ngives %q", block, got)
	}
}

// runConsole executes the commands of a block and compares what they print. settle is this program; what the nats program
// would send is sent by hand.
func runConsole(t *testing.T, env map[string]string, block string) {
	t.Helper()
	folder := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", runAsSettle, self)
	if err := os.WriteFile(filepath.Join(folder, "settle"), []byte(script), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		line, want, _ := strings.Cut(strings.TrimRight(part, "\n"), "\n")
		var got string
		switch request, ok := strings.CutPrefix(line, "nats request "); {
		case ok:
			got = requestByHand(t, env["NATS_URL"], request)
		default:
			got = runShell(t, env["NATS_URL"], folder, line)
		}
		if !likePage(strings.Split(want, "\n")).MatchString(got) {
			t.Errorf("%s\nprints\n%s\nand not\n%s", line, got, want)
		}
	}
}

func runShell(t *testing.T, nats, folder, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), processLimit)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-c", line) //nolint:gosec // the page is ours
	sh.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "NATS_URL=" + nats}
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return strings.TrimRight(string(out), "\n")
}

// requestByHand sends what nats request SUBJECT BODY -H HEADER:VALUE sends, and returns the body of the answer.
func requestByHand(t *testing.T, url, arguments string) string {
	t.Helper()
	var words []string
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(arguments, -1) {
		words = append(words, strings.Trim(word, "'"))
	}
	head := "NATS/1.0\r\n"
	for i := 2; i+1 < len(words); i += 2 {
		name, value, found := strings.Cut(words[i+1], ":")
		if words[i] != "-H" || !found {
			t.Fatalf("nats request %s", arguments)
		}
		head += name + ": " + value + "\r\n"
	}
	head += "\r\n"
	w := dial(t, url)
	w.about("INFO")
	w.says(`CONNECT {"verbose":false,"headers":true,"no_responders":true}`, "SUB _INBOX.cli 1",
		fmt.Sprintf("HPUB %s _INBOX.cli %d %d", words[0], len(head), len(head)+len(words[1])), head+words[1])
	frame := w.hears()
	return frame[len(frame)-1]
}
