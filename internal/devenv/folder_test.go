package devenv

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSweepRemovesOnlyFoldersNobodyHolds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	kept, err := newFolder("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	left, err := newFolder("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, left.file("data"))
	foreign := filepath.Join(os.TempDir(), "settle-test-foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	writeFile(t, target)
	if err := os.Symlink(filepath.Dir(target), filepath.Join(os.TempDir(), "settle-test-link")); err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(left.lock.Fd())) // what a server holds whose parent is gone
	if err != nil {
		t.Fatal(err)
	}
	left.lock.Close()

	another := sweepByStart(t)
	assertFolder(t, left.path)
	if err := syscall.Close(child); err != nil {
		t.Fatal(err)
	}
	yetAnother := sweepByStart(t)
	assertNoFolder(t, left.path)
	for _, path := range []string{kept.path, another.path, yetAnother.path, foreign, target} {
		assertFolder(t, path)
	}
	for _, f := range []*folder{kept, another, yetAnother} {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		assertNoFolder(t, f.path)
		if err := f.remove(); err != nil {
			t.Errorf("second removal: %v", err)
		}
	}
}

func TestReachable(t *testing.T) {
	closed := t.TempDir()
	inside := filepath.Join(closed, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/": true, "/tmp": true, inside: false, inside + "/missing": false} {
		if reachable(path) != want {
			t.Errorf("reachable(%s) is not %v", path, want)
		}
	}
}

// The server's account cannot enter the temporary folder: another one is taken.
func TestFolderLiesWhereTheAccountCanEnter(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Chmod(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	base, err := folderBase(&syscall.Credential{Uid: 65534})
	if err != nil || base != "/tmp" {
		t.Errorf("got %q, %v", base, err)
	}
}

func sweepByStart(t *testing.T) *folder {
	t.Helper()
	f, err := newFolder("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func assertFolder(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("%s is gone: %v", path, err)
	}
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
