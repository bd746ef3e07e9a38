package devenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// startLimit bounds the start of a server, initdb included. An idle machine needs about a second; one that compiles
// on all cores was seen to need eleven.
const startLimit = 60 * time.Second

// superuser owns the server and everything in it.
const superuser = "settle"

// PostgresOptions says what kind of server to start. The zero value is right for tests.
type PostgresOptions struct {
	// Durable makes commits survive a crash of the machine (fsync). Without it they survive only the crash of
	// processes, and the server is faster.
	Durable bool

	// Settings are server parameters, name to value, on top of ours. The default max_connections is 200.
	Settings map[string]string

	// Binaries is the folder of initdb and postgres. Empty: they are searched, see [ErrNoPostgres].
	Binaries string
}

// Postgres is a running server of our own. Its methods may be called from several goroutines.
type Postgres struct {
	options  PostgresOptions
	account  *syscall.Credential // nil: runs as we do
	folder   *folder
	password string
	port     int

	mu      sync.Mutex
	server  *process // the last one started, maybe gone
	watcher *watcher
	stopped bool
}

// StartPostgres makes a database cluster in a temporary folder, starts a server on it and returns when the server
// answers, usually after about a second and at most after 60. It listens on a free port of 127.0.0.1 and wants a
// random password. When we are root it runs as nobody.
//
// ctx bounds the start only; the server lives until Stop, or until this process ends. Without server binaries the
// error is [ErrNoPostgres].
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p, err := startPostgres(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

func startPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	if options.Binaries == "" {
		var err error
		if options.Binaries, err = findBinaries(ctx, installDirs); err != nil {
			return nil, err
		}
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	folder, err := newFolder("pg", account)
	if err != nil {
		return nil, err
	}
	p := &Postgres{options: options, account: account, folder: folder, password: newPassword()}
	if err := p.boot(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Postgres) boot(ctx context.Context) error {
	if err := p.initdb(ctx); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return retryExited(ctx, func(ctx context.Context) (err error) {
		if p.port, err = freePort(); err != nil {
			return err
		}
		return p.launch(ctx)
	})
}

// URL is the connection URL of the database postgres, with the password. It stays the same over Restart.
func (p *Postgres) URL() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.password),
		Host:     localAddr(p.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase creates an empty database and returns its URL. It fails if the database exists.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return DatabaseURL(p.URL(), name)
}

// Kill ends the server at once and without a checkpoint, as a crash would: open transactions are lost, committed
// ones are recovered by Restart. The folder stays.
func (p *Postgres) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt(syscall.SIGQUIT)
}

// Restart stops the server, if it is still running, and starts it again on the same data and port. It returns when
// the server answers, at most after 60 seconds. Open connections are cut.
func (p *Postgres) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("restart postgres: already stopped for good")
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p.halt(syscall.SIGINT)
	if err := retryExited(ctx, p.launch); err != nil {
		return fmt.Errorf("restart postgres: %w", err)
	}
	return nil
}

// Stop shuts the server down, cutting open connections, and removes its folder. It returns when both are gone.
// Repeated calls do nothing.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	p.halt(syscall.SIGINT)
	if err := p.folder.remove(); err != nil {
		return fmt.Errorf("stop postgres: remove its folder: %w", err)
	}
	return nil
}

// halt ends the server by the given signal: SIGINT is the fast shutdown of PostgreSQL, SIGQUIT the immediate one,
// with which a shutdown that hangs ends too.
func (p *Postgres) halt(s syscall.Signal) {
	if p.server == nil {
		return
	}
	const grace = 20 * time.Second
	p.server.stop(grace, s, syscall.SIGQUIT)
	p.watcher.stop()
	p.server, p.watcher = nil, nil
}

// command is a server binary with a bare environment, running as the server's account inside its folder.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(p.options.Binaries+"/"+name, args...)
	cmd.Dir = p.folder.path
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account}
	return cmd
}
