package pooler

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/internal/rig"
)

// pgbouncer is a running PgBouncer before one database.
type pgbouncer struct{ user, database, folder string }

// startPgBouncer starts one with so many connections to the server, and further settings. It ends with the test.
func startPgBouncer(t *testing.T, server string, sessions int, settings ...string) *pgbouncer {
	t.Helper()
	binary := findPgBouncer(t)
	config, err := pgx.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // short, and open to another account: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	ini, users := filepath.Join(folder, "ini"), filepath.Join(folder, "users")
	write(t, users, fmt.Sprintf("%q %q\n", config.User, config.Password))
	write(t, ini, fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
default_pool_size = %d
max_client_conn = 200
auth_type = trust
auth_file = %s
unix_socket_dir = %s
listen_port = 6432
log_connections = 0
log_disconnections = 0
log_stats = 0
%s
`, config.Host, config.Port, sessions, users, folder, strings.Join(settings, "\n")))
	process := rig.StartWorker(t, rig.WorkerOptions{Name: "pgbouncer", Binary: binary, Args: append(asNobody(t, folder, ini, users), ini)})
	rig.Eventually(t, soon, "PgBouncer listens", func() bool { return strings.Contains(process.Output(), "process up") })
	return &pgbouncer{config.User, config.Database, folder}
}

// asNobody makes PgBouncer, which refuses to run as root, run as another account that owns its files. Nobody else may
// read them: they hold the server's password.
func asNobody(t *testing.T, files ...string) (arguments []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(account.Uid)
	for _, file := range files {
		err = errors.Join(err, os.Chown(file, uid, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-u", account.Username}
}

// findPgBouncer also looks where Debian puts it, which is not in everybody's PATH.
func findPgBouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("pgbouncer is missing; run: apt-get install --no-install-recommends pgbouncer")
	return ""
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// url is a connection string through the pooler, with further parameters.
func (p *pgbouncer) url(parameters ...string) string {
	query := url.Values{"host": {p.folder}, "port": {"6432"}, "user": {p.user}}
	text := "postgres:///" + p.database + "?" + query.Encode()
	return strings.Join(append([]string{text}, parameters...), "&")
}
