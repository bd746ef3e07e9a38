package rights

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/internal/deploy"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/provider"
	"github.com/settlemq/settle/internal/rig"
)

// stage is an installation: a Postgres with the roles of roles.sql, a NATS server with the files of deploy/nats, the
// program of the image, and a provider.
type stage struct {
	t        *testing.T
	settle   string
	owner    *pgxpool.Pool // the superuser's, in the installation's database
	database string        // its URL
	certs    *authority
	nats     string // the server's URL
	provider string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, certs: newAuthority(t)}
	var err error
	if s.settle, err = deploy.Build(t.TempDir(), runtime.GOARCH); err != nil {
		t.Fatal(err)
	}
	s.startPostgres()
	s.startNATS()
	return s
}

func (s *stage) startPostgres() {
	s.t.Helper()
	postgres, err := devenv.StartPostgres(s.t.Context(), devenv.PostgresOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := postgres.Stop(); err != nil {
			s.t.Error(err)
		}
	})
	if s.database, err = postgres.CreateDatabase(s.t.Context(), "settle"); err != nil {
		s.t.Fatal(err)
	}
	if s.owner, err = pgxpool.New(s.t.Context(), s.database); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.owner.Close)
}

// grant runs deploy/roles.sql, as its first lines say.
func (s *stage) grant() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy.Root(), "deploy", "roles.sql"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.execute(string(text))
	for _, role := range []string{"migrator", "worker", "recovery", "archiver", "viewer", "operator", "publisher"} {
		s.execute("alter role settle_" + role + " login password 'of-a-test'")
	}
}

func (s *stage) execute(statements string) {
	s.t.Helper()
	conn, err := s.owner.Acquire(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().Exec(s.t.Context(), statements).ReadAll(); err != nil {
		s.t.Fatalf("%.60s…: %v", statements, err)
	}
}

// as is the URL of the database for a role.
func (s *stage) as(role string) string {
	s.t.Helper()
	u, err := url.Parse(s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	u.User = url.UserPassword("settle_"+role, "of-a-test")
	return u.String()
}

func (s *stage) session(role string) *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.as(role))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// startNATS runs the server on deploy/nats/server.conf as it stands.
func (s *stage) startNATS() {
	s.t.Helper()
	cert, key := s.certs.certificate("server")
	for name, value := range map[string]string{
		"NATS_SERVER_NAME": "settle", "NATS_LISTEN": "127.0.0.1:-1", "NATS_STORE": s.t.TempDir(), "NATS_TLS_CERT": cert, "NATS_TLS_KEY": key,
		"NATS_TLS_CA": s.certs.file("ca.pem"),
	} {
		s.t.Setenv(name, value)
	}
	options, err := server.ProcessConfigFile(filepath.Join(deploy.Root(), "deploy", "nats", "server.conf"))
	if err != nil {
		s.t.Fatal(err)
	}
	options.NoSigs, options.NoLog = true, true
	broker, err := server.NewServer(options)
	if err != nil {
		s.t.Fatal(err)
	}
	broker.Start()
	s.t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	if !broker.ReadyForConnections(soon) {
		s.t.Fatal("the NATS server does not become ready")
	}
	s.nats = broker.ClientURL()
}

// user is the environment of a process that is a user of NATS.
func (s *stage) user(name string) []string {
	cert, key := s.certs.certificate("settle-" + name)
	return []string{"NATS_URL=" + s.nats, "NATS_CA=" + s.certs.file("ca.pem"), "NATS_CERT=" + cert, "NATS_KEY=" + key, "NATS_INBOX=_INBOX." + name}
}

// connect is a connection of that user. What the server refuses comes through refused.
func (s *stage) connect(name string) (js jetstream.JetStream, refused chan error) {
	s.t.Helper()
	cert, key := s.certs.certificate("settle-" + name)
	refused, closed := make(chan error, 100), make(chan struct{})
	conn, err := nats.Connect(s.nats, nats.RootCAs(s.certs.file("ca.pem")), nats.ClientCert(cert, key),
		nats.CustomInboxPrefix("_INBOX."+name), nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close(); <-closed })
	if js, err = jetstream.New(conn); err != nil {
		s.t.Fatal(err)
	}
	return js, refused
}

// serveProvider needs the tables of the stand-in.
func (s *stage) serveProvider() {
	s.t.Helper()
	standIn := provider.New(s.owner, provider.Options{Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	var err error
	if s.provider, err = standIn.Listen("127.0.0.1:0"); err != nil {
		s.t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		if err := standIn.Run(ctx); err != nil {
			s.t.Errorf("provider: %v", err)
		}
	})
	s.t.Cleanup(func() { stop(); standIn.Close(); running.Wait() })
}

// start runs the program with an environment of its own.
func (s *stage) start(env []string, arguments ...string) *rig.Worker {
	s.t.Helper()
	return rig.StartWorker(s.t, rig.WorkerOptions{Name: "settle", Binary: s.settle, Args: arguments, Env: env})
}

// run runs the program to its end and returns what it wrote.
func (s *stage) run(want int, env []string, arguments ...string) string {
	s.t.Helper()
	process := s.start(env, arguments...)
	exit := process.Wait(soon)
	if exit.Code != want {
		s.t.Errorf("settle %s ended with %s, want %d:\n%s", strings.Join(arguments, " "), exit, want, process.Output())
	}
	if want == 0 && strings.Contains(process.Output(), "permission denied") {
		s.t.Errorf("settle %s wanted more than it may:\n%s", strings.Join(arguments, " "), process.Output())
	}
	return process.Output()
}

// says waits until a process has written a text.
func (s *stage) says(process *rig.Worker, text string) {
	s.t.Helper()
	rig.Eventually(s.t, soon, "the process says "+text, func() bool { return strings.Contains(process.Output(), text) })
}

// ask reads one value as the superuser.
func ask[T any](s *stage, query string, arguments ...any) (value T) {
	s.t.Helper()
	if err := s.owner.QueryRow(s.t.Context(), query, arguments...).Scan(&value); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return value
}
