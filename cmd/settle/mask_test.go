package main

import (
	"strings"
	"testing"
)

func TestMaskURL(t *testing.T) {
	for given, want := range map[string]string{
		"postgres://app:secret@db:5432/settle?sslmode=require":        "postgres://app:xxxxx@db:5432/settle?sslmode=require",
		"postgres://app@a:1,b:2/settle":                               "postgres://app@a:1,b:2/settle",
		"postgres://app@db/settle?password=secret&sslpassword=secret": "postgres://app@db/settle?password=xxxxx&sslpassword=xxxxx",
		"host=db user=app password=secret dbname=settle":              "host=db user=app password=xxxxx dbname=settle",
		"host=db password = 'se cret\\'s' dbname=settle":              "host=db password=xxxxx dbname=settle",
		"nats://user:secret@a:4222,nats://user:secret@b:4222":         "nats://user:xxxxx@a:4222,nats://user:xxxxx@b:4222",
		"nats://secrettoken@a:4222":                                   "nats://xxxxx@a:4222",
		"user:secret@a:4222, b:4222":                                  "user:xxxxx@a:4222,b:4222",
		"localhost":                                                   "localhost",
		"https://key:secret@api.example/v1?api_key=secret&region=eu":  "https://key:xxxxx@api.example/v1?api_key=xxxxx&region=xxxxx",
		"https://api.example/v1#secret":                               "https://api.example/v1",
		"postgres://app:sec/ret@db":                                   "(unreadable, not shown)",
		"nats://app:sec,ret@a:4222":                                   "(unreadable, not shown)",
		"nats://app:sec?ret@a:4222":                                   "(unreadable, not shown)",
		"nats://a:4222,b:4222":                                        "nats://a:4222,b:4222",
		"":                                                            "",
	} {
		got := maskURL(given)
		if got != want {
			t.Errorf("maskURL(%q) = %q, want %q", given, got, want)
		}
		if strings.Contains(got, "secret") || strings.Contains(got, "cret'") {
			t.Errorf("maskURL(%q) shows the secret: %q", given, got)
		}
	}
}

func FuzzMaskURLHidesThePassword(f *testing.F) {
	f.Add("app", "db:5432/settle")
	f.Add("a:b", "h,h2?x=y")
	f.Fuzz(func(t *testing.T, user, rest string) {
		const secret = "Tr0ub4dor"
		for _, scheme := range []string{"postgres://", "nats://", "https://", ""} {
			if got := maskURL(scheme + user + ":" + secret + "@" + rest); strings.Contains(got, secret) {
				t.Errorf("scheme %q, user %q, rest %q: %q", scheme, user, rest, got)
			}
		}
	})
}
