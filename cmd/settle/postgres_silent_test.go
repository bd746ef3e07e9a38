package main

import (
	"net"
	"strings"
	"testing"
)

// A Postgres that stands still takes connections and says nothing: a command says so in a few seconds, and where it had asked.
func TestAPostgresThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	var listen net.ListenConfig
	silent, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	address := silent.Addr().String()
	env := map[string]string{"DATABASE_URL": "postgres://settle:secret@" + address + "/settle?sslmode=disable"}
	code, _, said := runSettle(t, env, nil, "tasks", "list")
	if code != exitFailed || !strings.Contains(said, address+" does not answer within") || strings.Contains(said, "secret") {
		t.Errorf("exit %d: %s", code, said)
	}
}
