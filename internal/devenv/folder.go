package devenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the file in a folder whose lock says that the folder is in use.
const lockName = "owner.lock"

// folder is a temporary folder that belongs to this process and to the children that inherit its lock.
type folder struct {
	path string
	lock *os.File
}

// newFolder makes settle-<kind>-* and removes those of the same kind whose owners are gone. Where account is not
// nil the folder belongs to it, and lies where it can be reached.
func newFolder(kind string, account *syscall.Credential) (*folder, error) {
	base, err := folderBase(account)
	if err != nil {
		return nil, err
	}
	prefix := "settle-" + kind + "-"
	sweep(filepath.Join(base, prefix+"*"))
	path, err := os.MkdirTemp(base, prefix) // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	f := &folder{path: path}
	if err := f.claim(account); err != nil {
		return nil, errors.Join(fmt.Errorf("make folder: %w", err), f.remove())
	}
	return f, nil
}

// claim takes the lock before the lock file gets its name, so that a sweep never meets an unlocked new folder.
func (f *folder) claim(account *syscall.Credential) error {
	unnamed := filepath.Join(f.path, lockName+".new")
	lock, err := os.OpenFile(unnamed, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	f.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if err := os.Rename(unnamed, f.file(lockName)); err != nil {
		return err
	}
	if account == nil {
		return nil
	}
	return os.Chown(f.path, int(account.Uid), int(account.Gid))
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder. The lock is given up last.
func (f *folder) remove() error {
	if f.lock != nil {
		defer f.lock.Close()
	}
	root, err := os.OpenRoot(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return removeRoot(root)
}

// removeRoot deletes a folder, the lock file last: a removal that is cut short can be finished by a sweep.
func removeRoot(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			continue
		}
		if err := root.RemoveAll(entry.Name()); err != nil {
			return err
		}
	}
	if err := root.RemoveAll(lockName); err != nil {
		return err
	}
	return os.Remove(root.Name())
}

// sweep removes the folders that nobody holds. It is best effort: what cannot be opened or removed belongs to
// someone else, or waits for the next start.
func sweep(pattern string) {
	found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
	for _, path := range found {
		sweepOne(path)
	}
}

// sweepOne looks at the lock and removes through one handle: the temporary folder is writable for everyone, and
// path may become a link to something else at any moment. A lock that is a pipe must not make it wait.
func sweepOne(path string) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return
	}
	defer root.Close()
	lock, err := root.OpenFile(lockName, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = removeRoot(root)
	}
}

// folderBase is the temporary folder, or one of the usual ones where the account cannot reach the first: TMPDIR
// may lie under the home of root.
func folderBase(account *syscall.Credential) (string, error) {
	if account == nil {
		return os.TempDir(), nil
	}
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if reachable(base) {
			return base, nil
		}
	}
	return "", fmt.Errorf("make folder: uid %d can enter neither %s nor /tmp nor /var/tmp", account.Uid, os.TempDir())
}

// reachable says whether everybody may enter path and all folders above it.
func reachable(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}
