package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

const page1 = "/task/1"

func (s *screen) in(cookie string) bool {
	s.t.Helper()
	return s.send("GET", page1, "", "Cookie", cookie).status == http.StatusOK
}

func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	first := s.send("GET", page1+"?a=b", "", "Accept", "text/html")
	if first.status != http.StatusSeeOther || first.header.Get("Location") != "/sign-in?next=%2Ftask%2F1%3Fa%3Db" {
		t.Fatalf("%d to %s", first.status, first.header.Get("Location"))
	}
	form := s.send("GET", first.header.Get("Location"), "", "Accept", "text/html")
	if form.status != http.StatusOK || !strings.Contains(form.body, `value="/task/1?a=b"`) || strings.Contains(form.body, "<script") || strings.Contains(form.body, "style=") {
		t.Fatalf("%d %s", form.status, form.body)
	}
	got := s.signIn(" Ann ", secret)
	set := got.header.Get("Set-Cookie")
	if got.status != http.StatusSeeOther || got.header.Get("Location") != page1 || !strings.Contains(set, "HttpOnly") ||
		!strings.Contains(set, "SameSite=Lax") || !strings.Contains(set, "Path=/") || strings.Contains(set, "Domain") {
		t.Fatalf("%d %v", got.status, got.header)
	}
	cookie := cookieOf(got)
	if body := s.send("GET", page1, "", "Cookie", cookie).body; body != "ann operator password" {
		t.Errorf("the handler sees %q", body)
	}
	out := s.send("POST", pathSignOut, "", "Cookie", cookie)
	if out.status != http.StatusSeeOther || !strings.Contains(out.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signing out: %d %v", out.status, out.header)
	}
	if s.in(cookie) {
		t.Error("a stolen cookie works after signing out")
	}
	if log := s.log.String(); !strings.Contains(log, "signed in") || !strings.Contains(log, "signed out") || strings.Contains(log, secret) || strings.Contains(log, cookie[20:]) {
		t.Errorf("the log: %s", log)
	}
}

// bcrypt looks at 72 bytes and no more.
func TestMoreThanThePasswordIsNotThePassword(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	long := strings.Repeat("a", MaxPassword)
	hash, err := hashPassword(long, testCost)
	if err != nil {
		t.Fatal(err)
	}
	s.write(User{Name: "ann", Role: Operator, password: hash})
	s.want("more", s.signIn("ann", long+"b"), http.StatusUnauthorized)
	s.want("just it", s.signIn("ann", long), http.StatusSeeOther)
}

func TestSessionsCannotBeMadeUp(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	planted := cookieName + "=planted-by-somebody-else"
	cookie := s.session("ann", "Cookie", planted)
	again := s.session("vic", "Cookie", cookie)
	for name, bad := range map[string]string{
		"the planted one": planted, "the one before": cookie, "none": cookieName + "=", "cut": again[:len(again)-1], "longer": again + "A",
		"another case": strings.ToLower(again), "two": again + "; " + again, "of TLS": "__Host-" + again, "digest": fmt.Sprintf("%s=%x", cookieName, digestOf(again)),
	} {
		if s.in(bad) {
			t.Errorf("signed in with %s", name)
		}
	}
	if !s.in(again) {
		t.Error("the true one does not work")
	}
}

func TestSessionsExpireAndRotate(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	idle := s.session("ann")
	s.pass(DefaultIdle)
	if s.in(idle) {
		t.Error("an idle session lives on")
	}
	polled := s.session("ann")
	for range 4 {
		s.pass(DefaultIdle / 4)
		got := s.send("GET", page1, "", "Cookie", polled, "Sec-Fetch-Mode", "cors", "Accept", "text/html")
		if fresh := cookieOf(got); fresh != "" {
			polled = fresh
		} else if got.status == http.StatusSeeOther {
			t.Error("what a page fetched was taken to the sign-in page")
		}
	}
	if s.in(polled) {
		t.Error("a page that refreshes itself keeps its session for ever")
	}

	old := s.session("ann")
	s.pass(rotateEvery)
	fresh := cookieOf(s.send("GET", page1, "", "Cookie", old))
	if fresh == "" || fresh == old {
		t.Fatalf("no new id after %s: %q", rotateEvery, fresh)
	}
	if got := cookieOf(s.send("GET", page1, "", "Cookie", old)); got != fresh {
		t.Errorf("a request under way got the id %q, want the new one", got)
	}
	s.pass(oldIDFor)
	if s.in(old) || !s.in(fresh) {
		t.Error("the old id lives on, or the new one does not")
	}
	used := fresh
	for begun := s.now().Add(-rotateEvery - oldIDFor); s.now().Sub(begun) < DefaultLifetime-DefaultIdle/2; {
		s.pass(DefaultIdle / 2)
		used = cookieOf(s.send("GET", page1, "", "Cookie", used))
	}
	s.pass(DefaultIdle / 2)
	if s.in(used) {
		t.Error("a session lives longer than its lifetime")
	}
}

func TestAChangeOfTheUsersCountsAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	cookie, bearer := s.session("ann"), []string{"Authorization", "Bearer " + botToken}
	demoted := ann
	demoted.Role = Viewer
	s.write(demoted, bot)
	s.want("a demoted operator", s.send("POST", page1, "", "Cookie", cookie), http.StatusForbidden)
	hash, _ := hashPassword("another "+secret, testCost)
	s.write(User{Name: "ann", Role: Operator, password: hash}, bot)
	if s.in(cookie) {
		t.Error("a session outlives its password")
	}
	s.write(ann, bot)
	if s.in(cookie) {
		t.Error("an ended session came back")
	}
	cookie = s.session("ann")
	s.want("the script", s.send("GET", page1, "", bearer...), http.StatusOK)
	s.write(vic, bot)
	s.want("the script, alone", s.send("GET", page1, "", bearer...), http.StatusOK)
	s.write(ann, bot)
	if s.in(cookie) {
		t.Error("a user who was removed and added again is still in")
	}
	cookie = s.session("ann")
	s.write(vic)
	if s.in(cookie) {
		t.Error("a removed user is still in")
	}
	s.want("a removed script", s.send("GET", page1, "", bearer...), http.StatusUnauthorized)
	if err := os.Chmod(s.users, 0o644); err != nil {
		t.Fatal(err)
	}
	s.want("a file open to others", s.signIn("vic", secret), http.StatusServiceUnavailable)
	if !strings.Contains(s.log.String(), "chmod 600 "+s.users) {
		t.Errorf("the log does not say what to do: %s", s.log)
	}
	if err := os.Remove(s.users); err != nil {
		t.Fatal(err)
	}
	s.want("no file", s.send("GET", page1, "", "Cookie", cookie), http.StatusServiceUnavailable)
}

func TestGuessingGetsSlow(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *Config) { c.Proxy.From = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	home := []string{"X-Forwarded-For", "203.0.113.9"}
	s.session("ann", home...)
	tried, waits := 0, 0
	for i := range 60 { // each from an address of its own
		for _, name := range []string{"ann", "nobody"} {
			got := s.signIn(name, fmt.Sprint("wrong password ", i), "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
			switch {
			case got.status == http.StatusUnauthorized && strings.Contains(got.body, textWrong):
				tried++
			case got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "" && strings.Contains(got.body, textWait):
				waits++
			default:
				t.Fatalf("%d %v %s", got.status, got.header, got.body)
			}
		}
	}
	if tried != 2*(freeByName+1) || waits != 120-tried {
		t.Errorf("%d of 120 guesses were looked at, the same for both names", tried)
	}
	if got := s.signIn("ann", secret, "X-Forwarded-For", "198.51.100.200"); got.status != http.StatusTooManyRequests {
		t.Errorf("the right password of a stranger is tried at once: %d", got.status)
	}
	s.session("ann", home...) // is not kept out
	s.pass(longestWait)
	s.session("ann", "X-Forwarded-For", "198.51.100.200")
	if n := strings.Count(s.log.String(), "too many failures"); n > 4 {
		t.Errorf("the log was flooded with %d lines", n)
	}
	if strings.Contains(s.log.String(), "actor=nobody") {
		t.Error("an unknown name is in the log: it may be a password")
	}
}

func TestOneAddressCannotTryManyNames(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	tried := 0
	for i := range 40 { // the forged header changes nothing
		got := s.signIn(fmt.Sprint("user", i), "wrong password", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
		if got.status == http.StatusUnauthorized {
			tried++
		}
	}
	if tried != freeByAddress+1 {
		t.Errorf("%d names were tried, want %d", tried, freeByAddress+1)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	a, now := newAttempts(), time.Now()
	for i := range 3 * mostTracked {
		a.begin(fmt.Sprint(i), netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if len(a.byName.byKey) != mostTracked || a.byName.order.Len() != mostTracked || len(a.byAddress.byKey) != mostTracked {
		t.Errorf("%d names, %d addresses are kept", len(a.byName.byKey), len(a.byAddress.byKey))
	}
	for count, want := range map[int]time.Duration{0: 0, 3: 0, 4: time.Second, 5: 2 * time.Second, 9: longestWait, 1000: longestWait} {
		if got := waitAfter(count, freeByName); got != want {
			t.Errorf("after %d failures %s, want %s", count, got, want)
		}
	}
}

func TestTokensAreNotGuessedFromElsewhere(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	cookie := s.session("ann")
	for _, h := range [][]string{
		{"Bearer " + botToken + "x"}, {"Bearer " + botToken[:20]}, {"Bearer "}, {"Bearer"}, {botToken}, {"Basic " + botToken}, {""},
		{"Bearer " + bot.token.hex()}, {"Bearer " + botToken, "Bearer " + botToken},
	} {
		header := []string{"Cookie", cookie}
		for _, value := range h {
			header = append(header, "Authorization", value)
		}
		s.want(strings.Join(h, ", "), s.send("GET", page1, "", header...), http.StatusUnauthorized)
	}
	if body := s.send("GET", page1, "", "Authorization", "bearer "+botToken).body; body != "bot operator token" {
		t.Errorf("the true one: %s", body)
	}
	s.want("a token as password", s.signIn("bot", botToken), http.StatusUnauthorized)
}
