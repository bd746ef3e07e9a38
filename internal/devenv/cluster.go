package devenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// initdb makes the data folder. Every connection needs the password: other users of the machine can reach the port.
func (p *Postgres) initdb(ctx context.Context) error {
	passwordFile := p.folder.file("password")
	if err := p.writePassword(passwordFile); err != nil {
		return err
	}
	args := []string{
		"-D", p.folder.file("data"), "-U", superuser, "-A", "scram-sha-256", "--pwfile", passwordFile,
		"-E", "UTF8", "--locale=C",
	}
	if !p.options.Durable {
		args = append(args, "--no-sync")
	}
	err := run(ctx, p.command("initdb", args...), p.folder.file("initdb.log"))
	return errors.Join(err, os.Remove(passwordFile))
}

// writePassword hands the password over in a file, because everybody can read an argument.
func (p *Postgres) writePassword(path string) error {
	if err := os.WriteFile(path, []byte(p.password+"\n"), 0o600); err != nil {
		return err
	}
	if p.account == nil {
		return nil
	}
	return os.Chown(path, int(p.account.Uid), int(p.account.Gid))
}

func newPassword() string { return rand.Text() }

// launch starts the server on the port that was chosen and waits until it answers.
func (p *Postgres) launch(ctx context.Context) error {
	log, err := openLog(p.folder.file("postgres.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command("postgres", p.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{p.folder.lock} // the folder stays locked as long as the server lives
	if p.server, err = startProcess(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	if p.watcher, err = guard(p.server, syscall.SIGQUIT); err == nil {
		err = p.awaitReady(ctx)
	}
	if err != nil {
		p.halt(syscall.SIGQUIT)
	}
	return err
}

func (p *Postgres) arguments() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "", // TCP only: the usual socket folder is not ours, and paths have a length limit
		"max_connections":         "200",
		"logging_collector":       "off",
	}
	if !p.options.Durable {
		settings["fsync"], settings["full_page_writes"] = "off", "off"
	}
	maps.Copy(settings, p.options.Settings)
	args := []string{"-D", p.folder.file("data"), "-p", strconv.Itoa(p.port)}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// awaitReady returns nil when the server answers a query, errExited when it is gone, or the end of ctx.
func (p *Postgres) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.server.alive, cancel)()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		answer := p.ping(ctx)
		if answer == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		switch {
		case p.server.alive.Err() != nil:
			return fmt.Errorf("%w%s", errExited, logTail(p.folder.file("postgres.log")))
		case ctx.Err() != nil:
			return fmt.Errorf("wait for an answer: %w; last: %w", context.Cause(ctx), answer)
		}
	}
}

// ping has a limit of its own, because whoever took our port may accept connections and say nothing.
func (p *Postgres) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}
