package devenv

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissingBinariesNameTheInstallCommands(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := findBinaries(t.Context(), []string{t.TempDir() + "/*/bin"})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql", "DATABASE_URL",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestStartPostgresReportsMissingBinaries(t *testing.T) {
	t.Setenv("PATH", "")
	dirs := installDirs
	t.Cleanup(func() { installDirs = dirs })
	installDirs = nil
	if _, err := StartPostgres(t.Context(), PostgresOptions{}); !errors.Is(err, ErrNoPostgres) {
		t.Errorf("got %v", err)
	}
}

func TestFindBinariesTakesTheNewest(t *testing.T) {
	t.Setenv("PATH", "")
	root := t.TempDir()
	for _, version := range []string{"9.6", "14", "17"} {
		install(t, filepath.Join(root, version, "bin"), "initdb", "postgres")
	}
	install(t, filepath.Join(root, "18", "bin"), "initdb") // client tools alone are no server
	found, err := findBinaries(t.Context(), []string{root + "/*/bin"})
	if want := filepath.Join(root, "17", "bin"); err != nil || found != want {
		t.Errorf("got %s, %v; want %s", found, err, want)
	}
}

func TestNewestFirstComparesNumbers(t *testing.T) {
	dirs := []string{"/pg/9.6/bin", "/pg/17/bin", "/pg/bin", "/opt/postgresql@16/bin", "/opt/postgresql/bin"}
	slices.SortFunc(dirs, newestFirst)
	want := []string{"/pg/17/bin", "/opt/postgresql@16/bin", "/pg/9.6/bin", "/opt/postgresql/bin", "/pg/bin"}
	if !slices.Equal(dirs, want) {
		t.Errorf("got %v", dirs)
	}
}

func TestFindBinariesPrefersThePathAndFollowsLinks(t *testing.T) {
	root := t.TempDir()
	installed, links := filepath.Join(root, "pg"), filepath.Join(root, "links")
	install(t, installed, "initdb", "postgres")
	install(t, filepath.Join(root, "99", "bin"), "initdb", "postgres")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(installed, "initdb"), filepath.Join(links, "initdb")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", links)
	found, err := findBinaries(t.Context(), []string{root + "/*/bin"})
	if want, _ := filepath.EvalSymlinks(installed); err != nil || found != want {
		t.Errorf("got %s, %v; want %s", found, err, want)
	}
}

func TestFindBinariesAsksPgConfig(t *testing.T) {
	root := t.TempDir()
	install(t, filepath.Join(root, "pg"), "initdb", "postgres")
	tools := filepath.Join(root, "tools")
	install(t, tools)
	script := "#!/bin/sh\necho " + filepath.Join(root, "pg") + "\n"
	if err := os.WriteFile(filepath.Join(tools, "pg_config"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools)
	found, err := findBinaries(t.Context(), nil)
	if want := filepath.Join(root, "pg"); err != nil || found != want {
		t.Errorf("got %s, %v; want %s", found, err, want)
	}
}

func install(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
