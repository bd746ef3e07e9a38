package devenv

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPostgres is returned by [StartPostgres] when the machine has no PostgreSQL server binaries. It names the
// commands that install them.
var ErrNoPostgres = errors.New(`no PostgreSQL server binaries found
(looked for initdb and postgres in PATH, pg_config --bindir, /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin, Homebrew)
install them:
    apt-get install postgresql          Debian, Ubuntu
    dnf install postgresql-server       Fedora, RHEL
    brew install postgresql@17          macOS
or set DATABASE_URL to a running server, where the command accepts one`)

// installDirs are where packages put the server binaries without adding them to PATH.
var installDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
}

// findBinaries returns the folder that holds both initdb and postgres. The patterns come last: PATH and pg_config
// are what the user chose.
func findBinaries(ctx context.Context, patterns []string) (string, error) {
	candidates := []string{pathDir(), configDir(ctx)}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		slices.SortFunc(found, newestFirst)
		candidates = append(candidates, found...)
	}
	for _, dir := range candidates {
		if dir != "" && executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", ErrNoPostgres
}

// pathDir is the folder of the initdb in PATH. Links are followed: initdb looks for its share folder beside the
// real binary, and for the postgres of its own version.
func pathDir() string {
	path, err := exec.LookPath("initdb")
	if err != nil {
		return ""
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	return filepath.Dir(path)
}

func configDir(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)?`)

// newestFirst orders install folders by the version in their path, as numbers: 9.6 is older than 17.
func newestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(pathVersion(b), pathVersion(a)), cmp.Compare(a, b))
}

// pathVersion is the last number in the path; 0, the oldest, if there is none.
func pathVersion(dir string) float64 {
	numbers := versionNumber.FindAllString(dir, -1)
	if len(numbers) == 0 {
		return 0
	}
	version, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64) // cannot fail: digits
	return version
}
