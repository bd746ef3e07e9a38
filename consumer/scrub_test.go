package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScrub(t *testing.T) {
	for in, want := range map[string]string{
		"": "",

		// Cards.
		"card 4111111111111111 declined":                        "card [card] declined",
		"card 4111 1111 1111 1111 declined":                     "card [card] declined",
		"card 4111-1111-1111-1111.":                             "card [card].",
		`{"pan":5500005555555559,"of":1}`:                       `{"pan":[card],"of":1}`,
		"amex 378282246310005, maestro 6799990100000000019":     "amex [card], maestro [card]",
		"13 digits: 4222222222222":                              "13 digits: [card]",
		"order 4 4111111111111111 1":                            "order 4 [card] 1",
		"4111111111111111/4012888888881881":                     "[card]/[card]",
		"-4111111111111111":                                     "-[card]",
		"4111111111111112 does not pass":                        "4111111111111112 does not pass",
		"12 digits: 411111111116":                               "12 digits: 411111111116",
		"20 digits: 41111111111111111115":                       "20 digits: 41111111111111111115",
		"0000000000000000":                                      "0000000000000000",
		"ch_4111111111111111, order_4111111111111111":           "ch_4111111111111111, order_4111111111111111",
		"4111111111111111a, 4111111111111111_1":                 "4111111111111111a, 4111111111111111_1",
		"2026-11-29T10:00:00.25Z took 12345678 ns":              "2026-11-29T10:00:00.25Z took 12345678 ns",
		"task 00000000-0000-4000-8000-1234567890ab":             "task 00000000-0000-4000-8000-1234567890ab",
		"s1-0123456789abcdef0123456789abcdef01234567 was known": "s1-0123456789abcdef0123456789abcdef01234567 was known",

		// Addresses of people.
		"no such customer: alice.b+x@example.com.": "no such customer: [email].",
		`{"email":"Zoë@exämple.org"}`:              `{"email":"[email]"}`,
		"email=alice%40example.com&x=1":            "email=[email]&x=1",
		"a@b.c,d@e.f":                              "[email],[email]",
		"at 10 @ 5 EUR; @mention; 3@4":             "at 10 @ 5 EUR; @mention; 3@4",

		// URLs.
		"postgres://settle:hunter2@db:5432/x?sslmode=off": "postgres://[secret]@db:5432/x?[secret]",
		"postgres://settle:hun/ter@2@db/x":                "postgres://[secret]@db/x",
		"postgres://settle:hunt?er2@db/x":                 "postgres://[secret]@db/x",
		"nats://token123@n1:4222,nats://u:p@n2:4222":      "nats://[secret]@n2:4222",
		`Get "https://api/x?key=abc#frag": EOF`:           `Get "https://api/x?[secret]": EOF`,
		"see https://api:8443/v1/charges/ch_1 for it":     "see https://api:8443/v1/charges/ch_1 for it",
		"https://api:8443/cb?mail=a@b.c":                  "https://api:8443/cb?[secret]",
		"https://h/p#access_token=abc":                    "https://h/p#[secret]",

		// Passwords and tokens.
		"Authorization: Bearer abc.def-123":         "Authorization: [secret]",
		"bearer tok_12345 expired":                  "bearer [secret] expired",
		"Basic dXNlcjpwYXNz was refused":            "Basic [secret] was refused",
		"Basic authentication failed":               "Basic authentication failed",
		`{"token":"abc","next":"def"}`:              `{"token":"[secret]","next":"def"}`,
		`{"client_secret": "a\"b", "a": 1}`:         `{"client_secret": "[secret]", "a": 1}`,
		`{\"password\":\"x y\"}`:                    `{\"password\":\"[secret]\"}`,
		"host=db password=hunter2 user=u":           "host=db password=[secret] user=u",
		"password='hunter 2' user=u":                "password='[secret]' user=u",
		"X-Api-Key: 9f8e7d6c":                       "X-Api-Key: [secret]",
		`"cvc": 123}`:                               `"cvc": [secret]}`,
		"invalid token: expired":                    "invalid token: expired",
		"unexpected token < in JSON":                "unexpected token < in JSON",
		`{"token": null}`:                           `{"token": null}`,
		"the key sk_live_abcdefghij0123 is wrong":   "the key [secret] is wrong",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2ln ok": "[secret] ok",

		// What people need to read stays.
		"POST /charges: 402 Payment Required (card_declined)":                                    "POST /charges: 402 Payment Required (card_declined)",
		"dial tcp 127.0.0.1:8090: connect: connection refused":                                   "dial tcp 127.0.0.1:8090: connect: connection refused",
		`ERROR: duplicate key value violates unique constraint "payments_pkey" (SQLSTATE 23505)`: `ERROR: duplicate key value violates unique constraint "payments_pkey" (SQLSTATE 23505)`,
	} {
		if got := scrub(in); got != want {
			t.Errorf("scrub(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzScrub(f *testing.F) {
	for _, s := range []string{"4111 1111 1111 1111", "a@b.c", "x://u:p@h?q", "password=x", "Bearer abc123", `\n`, `\u0020`, "Authorization: Digest a=\"b\"", "secret:[{", "-abcd-", "4111-", `"token":"a\"b"`, "eyJ0123456789", "%40", "://@?#"} {
		f.Add(s, "between")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := scrub(before + after)
		if again := scrub(text); again != text {
			t.Fatalf("%q became %q and then %q", before+after, text, again)
		}
		if utf8.ValidString(before+after) && !utf8.ValidString(text) {
			t.Fatalf("%q became %q", before+after, text)
		}
		// Whatever stands around: nothing of it hides them, unless it makes an id of the number.
		for _, secret := range []string{"4111111111111111", "alice@example.com", "postgres://settle:hunter2@db/x", "password=hunter2"} {
			if strings.Contains(before+after, secret) {
				continue
			}
			if got := scrub(before + " " + secret + " " + after); strings.Contains(got, secret) {
				t.Fatalf("%q is in %q", secret, got)
			}
		}
	})
}

// An error keeps what it is, and its text is fit to be shown: to logs, spans and rows alike.
func TestScrubbedErrors(t *testing.T) {
	cause := errors.New("no card 4111111111111111")
	_, err := contain(func() (int, error) { return 0, Refused(fmt.Errorf("charge: %w", cause)) })
	if err.Error() != "charge: no card [card]" || !errors.Is(err, cause) || classOf(err) != classRefused {
		t.Errorf("%v, %v", err, classOf(err))
	}
	if _, err := contain(func() (int, error) { return 0, cause }); errorClassOf(err) != "unknown" {
		t.Errorf("class %s", errorClassOf(err))
	}
	if plain := errors.New("nothing in it"); scrubError(plain) != plain { //nolint:errorlint // the very same
		t.Error("an error with nothing in it was wrapped")
	}
	if _, err := (&definition{key: func(any) (string, error) { return "", cause }}).keyOf(nil); err.Error() != "bad_key: no card [card]" {
		t.Errorf("a publisher is told %v", err)
	}
	half := errors.New(strings.Repeat("x", maxErrorText-30) + " 4111111111111111")
	if text := errorText(half); strings.Contains(text, "41111") {
		t.Errorf("cut before it was scrubbed: %q", text[len(text)-40:])
	}
}

func TestLogsOfErrorsAreScrubbed(t *testing.T) {
	var out bytes.Buffer
	log := textualLog(slog.New(slog.NewTextHandler(&out, nil)))
	log = log.With("kind", "payment.charge").WithGroup("g")
	log.Info("failed", "key", "order_4111111111111111", "external_id", "4111111111111111", "error", errors.New("for alice@example.com"))
	log.Info("fine", "key", "order_1")
	for _, want := range []string{"kind=payment.charge", "g.key=order_4111111111111111", "g.external_id=4111111111111111", `g.error="for [email]"`, "g.key=order_1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	for name, text := range map[string]string{
		"an error":         "POST /charges: 402 Payment Required (card_declined)",
		"a usual answer":   `{"charge_id":"ch_8dG2kX0qPz","status":"succeeded","replayed":false,"order_id":"18452","amount":1200,"currency":"EUR"}`,
		"the longest kept": strings.Repeat(`{"name":"value","number":12345},`, maxAnswer/32),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_ = scrub(text)
			}
		})
	}
}
