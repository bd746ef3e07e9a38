// Package devtest gives tests real servers: a database of their own with the schema in it, and a JetStream of their
// own. A server that is missing fails the test.
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		pool := devtest.Pool(t)
//		_, js := devtest.JetStream(t)
//		…
//	}
//
// The PostgreSQL server is the one of TEST_DATABASE_URL, else of DATABASE_URL (its user must be allowed to create
// databases), else one that the test binary starts when the first test asks for it, and stops at its end.
package devtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/devenv"
)

// Main runs the tests of a package, stops the server that they used, looks for goroutines that they left behind and
// exits. Call it as the only statement of TestMain; it also makes [devenv.StartNATSProcess] work in the tests.
func Main(m *testing.M, allowed ...goleak.Option) {
	devenv.RunChild()
	code := m.Run()
	problems := []error{shared.stop()}
	if code == 0 { // a failed test leaves goroutines too, and its own message says more
		problems = append(problems, goleak.Find(allowed...))
	}
	for _, err := range problems {
		if err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Database returns the connection string of a fresh database that holds the schema. The database is dropped when the
// test is over, along with the connections that are still open to it.
func Database(t testing.TB) string {
	t.Helper()
	if err := shared.start(); err != nil {
		t.Fatalf("a server for the test: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	name := newDatabaseName()
	url, err := shared.create(ctx, name)
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() {
		// Not the context of the test, which is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
		defer cancel()
		if err := shared.drop(ctx, name); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return url
}

// Pool returns a pool on a fresh [Database]. It is closed when the test is over; a connection that was not given
// back by then fails the test.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), Database(t))
	if err != nil {
		t.Fatalf("a pool for the test: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool bounds Close, which waits for connections that may never come back.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	const limit = 10 * time.Second
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("close the pool of the test: %d connections not given back", pool.Stat().AcquiredConns())
	}
}

// JetStream starts a server in this process and returns its URL and a client of it. Both end with the test.
func JetStream(t testing.TB) (string, jetstream.JetStream) {
	t.Helper()
	server, err := devenv.StartNATS(devenv.NATSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server.URL(), connect(t, server.URL())
}

func connect(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(url, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatalf("connect to the server of the test: %v", err)
	}
	t.Cleanup(func() {
		nc.Close()
		<-closed // handlers run to their end before the server goes
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("a client for the test: %v", err)
	}
	return js
}
