package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/settlemq/settle/internal/admin/access"
	"github.com/settlemq/settle/internal/devenv"
)

// screen is the support screen beside a demo that keeps running.
type screen struct{ url, user, password string }

const screenLimit = 20 * time.Second // until it listens

// listensAt is where it says that it listens, in its log.
var listensAt = regexp.MustCompile(`"the support screen listens".*"url":"(http[^"]+)"`)

// startScreen starts the support screen as a process of its own, with a user who exists in this demo alone.
func (s *stage) startScreen(ctx context.Context) (out screen, err error) {
	program, err := os.Executable()
	if err != nil {
		return out, err
	}
	folder, err := os.MkdirTemp("", "settle-demo-users-")
	if err != nil {
		return out, err
	}
	s.later(func() error { return os.RemoveAll(folder) })
	users := filepath.Join(folder, "users")
	out.user, out.password = "demo", access.GeneratePassword()
	if err := access.AddUser(users, out.user, access.Operator, out.password, false); err != nil {
		return out, err
	}
	cmd := exec.Command(program, "admin", "--admin-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--admin-users", users) //nolint:gosec,noctx // our own binary; it is stopped below
	cmd.Env = append(devenv.OwnEnvironment(), s.environment()...)
	out.url, err = s.startListening(ctx, cmd)
	return out, err
}

// startListening starts a program whose log goes with the workers', and waits until it says where it listens.
func (s *stage) startListening(ctx context.Context, cmd *exec.Cmd) (url string, err error) {
	log, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = write, write
	program, err := devenv.StartProgram(cmd)
	err = errors.Join(err, write.Close()) // the child has its own
	if err != nil {
		return "", errors.Join(err, log.Close())
	}
	found, copied := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(copied)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(s.logs, lines.Text())
			if at := listensAt.FindStringSubmatch(lines.Text()); at != nil && len(found) == 0 {
				found <- at[1]
			}
		}
		_, _ = io.Copy(s.logs, log) // behind a line without end
	}()
	s.later(func() error { program.Stop(drainTime); <-copied; return log.Close() })
	select {
	case url = <-found:
		return url, nil
	case <-program.Exited():
		return "", fmt.Errorf("the support screen did not start; %s says why", s.logs.Name())
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(screenLimit):
		return "", errors.New("the support screen does not listen")
	}
}
