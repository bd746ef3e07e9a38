package consumer

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

type scrubCase struct{ in, want string }

func unchanged(in string) scrubCase { return scrubCase{in, in} }

func checkScrub(t *testing.T, cases []scrubCase) {
	t.Helper()
	for _, c := range cases {
		got := scrub(c.in)
		if got != c.want {
			t.Errorf("scrub(%q) = %q, want %q", c.in, got, c.want)
		}
		if again := scrub(got); again != got {
			t.Errorf("scrub(%q) = %q, and then %q", c.in, got, again)
		}
	}
}

// What stands behind an escape in a JSON text begins there, and not with the escape's letter.
func TestScrubBehindEscapes(t *testing.T) {
	for _, escape := range []string{`\n`, `\r`, `\t`, `\b`, `\f`, `\u000a`, `\u00A0`, `\r\n`, `\\n`} {
		checkScrub(t, []scrubCase{
			{`{"message":"card:` + escape + `4111111111111111 declined"}`, `{"message":"card:` + escape + `[card] declined"}`},
			{escape + "4111 1111 1111 1111", escape + "[card]"},
			{"4111111111111111" + escape, "[card]" + escape},
			{escape + "Bearer abc123", escape + "Bearer [secret]"},
			{escape + "password=hunter", escape + "password=[secret]"},
			{escape + "sk_live_abcdefghij0123", escape + "[secret]"},
		})
	}
	checkScrub(t, []scrubCase{
		{`C:\token=abc \bearer abc123`, `C:\token=[secret] \bearer [secret]`},
		unchanged(`\u12 \x \`), unchanged(`\u12`), unchanged(`\`),
		{`\rk_live_abcdefghij0123`, `\[secret]`},
	})
}

func TestScrubSecretNames(t *testing.T) {
	checkScrub(t, []scrubCase{
		// Whatever the scheme, up to the end of the line or of the string.
		{"Authorization: Token abcdef\nHost: x", "Authorization: [secret]\nHost: x"},
		{"authorization: ApiKey letters only\r\nHost: x", "authorization: [secret]\r\nHost: x"},
		{"Proxy-Authorization: Digest username=\"bob\", response=\"abc\"\nHost: x", "Proxy-Authorization: [secret]\nHost: x"},
		{`{"Authorization": "Digest username=\"bob\", a=b", "n": 1}`, `{"Authorization": "[secret]", "n": 1}`},
		{`{\"authorization\":\"Token abc\",\"n\":1}`, `{\"authorization\":\"[secret]\",\"n\":1}`},
		{`{"sent":"AUTHORIZATION: Token abc","n":1}`, `{"sent":"AUTHORIZATION: [secret]","n":1}`},
		{`{"sent":"Authorization: Token abc\nHost: x"}`, `{"sent":"Authorization: [secret]\nHost: x"}`},
		{`"{\"sent\":\"Authorization: Digest a=\"b\" c\",\"n\":1}"`, `"{\"sent\":\"Authorization: [secret]\",\"n\":1}"`},
		{"map[Authorization:[Token abc] Host:[x]]", "map[Authorization:[[secret]] Host:[x]]"},
		{`{"Authorization":["Token abc"],"Host":["x"]}`, `{"Authorization":[[secret]],"Host":["x"]}`},
		{"Authorization:", "Authorization:"},
		unchanged("authorization failed"),

		// Passwords may be words.
		{"password: hunter", "password: [secret]"},
		{"db_passwd=hunter", "db_passwd=[secret]"},
		{"PWD = hunter;", "PWD = [secret];"},
		{"client-secret: Bearer abc123 was", "client-secret: [secret] was"},
		{`{"password":["hunter","other]"],"n":1}`, `{"password":[[secret]],"n":1}`},
		{`{"secret":{"key":["abc"],"b":"c"},"n":1}`, `{"secret":{[secret]},"n":1}`},
		{`{\"password\":[\"a\"],\"n\":1}`, `{\"password\":[[secret]],\"n\":1}`},
		{"password: [hunter", "password: [[secret]"},
		{`{"password" => "hunter"}`, `{"password" => "[secret]"}`},
		{"password := hunter", "password := [secret]"},
		{`{"password":"","order":"x"}`, `{"password":"","order":"x"}`},
		{"password='' user=u", "password='' user=u"},
		unchanged("password=[secret] user=u"),
		unchanged("the password is wrong"),

		// Meant to be seen.
		unchanged(`{"idempotency_token":"order_18452"}`),
		unchanged("Idempotency-Token: order_18452, idempotencyToken=x1"),
	})
}

func TestScrubTellsCardsFromIDs(t *testing.T) {
	checkScrub(t, []scrubCase{
		// Each network, by its lengths.
		{"30569309025904 3566002020360505 378282246310005", "[card] [card] [card]"},
		{"4222222222222 4012888888881881 4111111111111111110", "[card] [card] [card]"},
		{"5500005555555559 2223003122003222 6011111111111117 620000000000000005", "[card] [card] [card] [card]"},
		{"3782 822463 10005, 3782-822463-10005", "[card], [card]"},
		{"3056 930902 5904", "[card]"},
		{"4111 1111 1111 1111 12 2027", "[card] 12 2027"},
		{"4111 1111 1111 1111 110", "[card]"},
		{"4111-1111-1111-1111 4012-8888-8888-1881", "[card] [card]"},
		{"4111111111111111-4012888888881881", "[card]-[card]"},
		{"20261113-4111111111111111, card-4111111111111111", "20261113-[card], card-[card]"},

		// These pass the check sum.
		unchanged("order 1345678901234567897"),
		unchanged("at 1764410400006"),
		unchanged("orders 18454 18455 18456"),
		unchanged("2026-11-13 2026-12-18"),
		unchanged("b0d6a1d4-0000-4000-8901-123456789012"),
		unchanged("8901-123456789012"),
		unchanged("2721000000000004 0000000000000000 1234567812345670"),
		unchanged("30569309025900007 352828224631000 55000055555555"),
		unchanged("4111 1111-1111 1111"),
		unchanged("4111  1111  1111  1111"),
		unchanged("41111 11111 11111 1"),
		unchanged("00-4bf92f3577b34da6a3ce929d0e0e4736-4111111111111111-01"),
		unchanged("4111111111111111-4bf9-01, 4111-1111-1111-1111-abcd"),
	})
}

// Each of these units made a text whose every part looked at all that stands before or behind it, or might have.
func TestScrubTakesLinearTime(t *testing.T) {
	for _, unit := range []string{
		"%40", "@", "x@", "%40a", "a.%40", "token:", "token: ", "bearer/", "bearer ", "password=''", "password:[", "secret:[secret]",
		"authorization:\n", `authorization:"`, "authorization=", `token:\"`, "idempotency_token", "-", "1 ", "1-", "4111 ", "4111-",
		"a-", "-4222222222222", "://", "://a@", "x://:", "http://a?@", `\`, `\n`, `\u0020`, "eyJ", "4", "'", `"`,
	} {
		if growth := growth(unit); growth > 4 {
			t.Errorf("%q: a text takes %.0f times as long as its parts", unit, growth)
		}
	}
}

// growth is how many times as long the scrubbing of a text takes as that of its 16 parts: about 1, or about 16 if each part
// looks at all of the others. What else the machine does can make one comparison look bad, so that only the best of some counts.
func growth(unit string) float64 {
	const parts = 16
	part := strings.Repeat(unit, 4<<10/len(unit))
	whole := strings.Repeat(part, parts)
	best := math.Inf(1)
	for range 10 {
		best = min(best, float64(timeToScrub(whole, 1))/float64(timeToScrub(part, parts)))
		if best < 3 {
			break
		}
	}
	return best
}

func timeToScrub(text string, times int) time.Duration {
	begun := time.Now()
	for range times {
		_ = scrub(text)
	}
	return max(time.Since(begun), time.Microsecond)
}

// Of a text without bounds the beginning is looked at and a little kept, and where it was cut no half secret is left.
func TestScrubbedTextsAreBounded(t *testing.T) {
	hidden := strings.Repeat("password=hunter ", mostScrubbed/16-2) // as long as what is looked at, and short without its secrets
	for _, secret := range []string{"4111 1111 1111 1111", "postgres://settle:hunter@db/x", "canary@example.com"} {
		for shift := range 40 {
			text := scrubbed(hidden+strings.Repeat(".", shift)+secret+strings.Repeat(" more", 20<<10), 2*mostScrubbed)
			for _, half := range []string{"4111", "hunter", "canary"} {
				if strings.Contains(text, half) {
					t.Fatalf("%q is in %q", half, text[len(text)-80:])
				}
			}
			if !strings.HasSuffix(text, cutMark) {
				t.Fatalf("no mark of the cut in %q", text[len(text)-80:])
			}
		}
	}
	if text := scrubbed(strings.Repeat("ä", mostScrubbed), maxAnswer); len(text) > maxAnswer || !strings.HasSuffix(text, "ä"+cutMark) {
		t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-10:])
	}
	cause := errors.New(strings.Repeat("x", 256<<10))
	if err := scrubError(cause); len(err.Error()) > maxErrorText || !errors.Is(err, cause) {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// An exporter drops what is too large for it, with all that is sent along.
func TestSpanEventsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spans := b.trace()
	_, span := b.conf.TracerProvider.Tracer("test").Start(t.Context(), "long")
	endSpan(span, errors.New(strings.Repeat("x", 256<<10)))
	for _, span := range spans.GetSpans() {
		for _, event := range span.Events {
			for _, label := range event.Attributes {
				if n := len(label.Value.AsString()); label.Key == attribute.Key("exception.message") && (n == 0 || n > maxErrorText) {
					t.Errorf("%d bytes in %s", n, label.Key)
				}
			}
		}
		if len(span.Events) == 0 {
			t.Error("the error is not on the span")
		}
	}
}
