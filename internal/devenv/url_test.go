package devenv

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestDatabaseURL(t *testing.T) {
	for _, from := range []string{
		"postgres://u:p%40ss@h:1/old?sslmode=disable",
		"postgres://u:p%40ss@h:1?sslmode=disable&dbname=old",
		"host=h port=1 user=u password='p@ss' dbname=old sslmode=disable",
	} {
		for _, name := range []string{"fresh", `it's a "name"`, "a/b"} {
			to, err := DatabaseURL(from, name)
			if err != nil {
				t.Fatal(err)
			}
			config, err := pgx.ParseConfig(to)
			if err != nil {
				t.Fatalf("%s: %v", to, err)
			}
			if config.Database != name || config.Host != "h" || config.Port != 1 || config.Password != "p@ss" {
				t.Errorf("%s with %s gives %s", from, name, to)
			}
		}
	}
	if _, err := DatabaseURL("postgres://u:secret@[bad/x", "y"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}
