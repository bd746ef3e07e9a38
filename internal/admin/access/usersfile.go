package access

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
)

const maxUsersFile = 1 << 20 // bytes

// usersFile is the users' file as it was when it last changed. Looking costs a stat, so every request looks, and a removed
// user is out with the next one. A file that cannot be read lets nobody in: it may be the one that removed somebody.
type usersFile struct {
	path string
	cost int

	mu    sync.Mutex
	info  fs.FileInfo
	users []User
	err   error
}

func openUsers(path string, cost int) (*usersFile, error) {
	f := &usersFile{path: path, cost: cost}
	_, _, err := f.current()
	return f, err
}

// current returns the users. changed is true once after each change, also one for the worse.
func (f *usersFile) current() (users []User, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		changed = f.info != nil || f.err == nil
		f.info, f.users, f.err = nil, nil, missing(f.path, err)
		return nil, changed, f.err
	}
	if f.info == nil || !sameState(f.info, info) {
		f.info, changed = info, true
		f.users, f.err = readUsers(f.path, f.cost)
	}
	return f.users, changed, f.err
}

// sameState: a file that was replaced is another one even within the resolution of its time.
func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

func missing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("users' file %s does not exist: make it with settle admin user add: %w", path, fs.ErrNotExist)
	}
	return fmt.Errorf("users' file: %w", err)
}

func readUsers(path string, cost int) ([]User, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	users, err := parseUsers(data, cost)
	if err != nil {
		return nil, fmt.Errorf("users' file %s, %w", path, err)
	}
	return users, nil
}

// readPrivate reads a file that only its owner may write and that only he and his group may read: a mounted secret
// belongs to root and to the group of the process.
func readPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, missing(path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("users' file: %w", err)
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, fmt.Errorf("users' file %s is not a file", path)
	case mode.Perm()&0o027 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("users' file %s is open to others (mode %04o): chmod 600 %s", path, mode.Perm(), path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxUsersFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("users' file: %w", err)
	case len(data) > maxUsersFile:
		return nil, fmt.Errorf("users' file %s is longer than %d bytes", path, maxUsersFile)
	}
	return data, nil
}
