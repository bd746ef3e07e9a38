package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrUser is that a user is there already, or is not.
var ErrUser = errors.New("user")

// AddUser puts a user who signs in with a password into a users' file, which it makes if it is missing. A user who is there
// already is refused with [ErrUser], or with replace gets the new role and password, and has to sign in again.
//
// The file is replaced as a whole and belongs to its owner alone (mode 0600); comments stay. A running server reads it
// with its next request. Two changes at the same time: one of them is refused.
func AddUser(path, name string, role Role, password string, replace bool) error {
	if err := CheckPassword(name, password); err != nil {
		return err
	}
	hash, err := hashPassword(password, passwordCost)
	if err != nil {
		return err
	}
	return add(path, User{Name: name, Role: role, password: hash}, replace)
}

// AddToken is [AddUser] for a script: it returns the bearer token, which is kept nowhere.
func AddToken(path, name string, role Role, replace bool) (token string, err error) {
	token = tokenPrefix + randomText()
	return token, add(path, User{Name: name, Role: role, token: digestOf(token)}, replace)
}

func add(path string, u User, replace bool) error {
	if err := CheckUser(u.Name, u.Role); err != nil {
		return err
	}
	return edit(path, func(data []byte, there bool) ([]byte, error) {
		if there && !replace {
			return nil, fmt.Errorf("%w %s is there already", ErrUser, u.Name)
		}
		rest := without(data, u.Name)
		if len(rest) > 0 && !bytes.HasSuffix(rest, []byte("\n")) {
			rest = append(rest, '\n')
		}
		return append(append(rest, u.line()...), '\n'), nil
	}, u.Name)
}

// RemoveUser takes a user out of a users' file; its sessions and its token end with the server's next request. A user who
// is not there is refused with [ErrUser].
func RemoveUser(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return missing(path, err)
	}
	name = canonical(name)
	return edit(path, func(data []byte, there bool) ([]byte, error) {
		if !there {
			return nil, fmt.Errorf("%w %s is not there", ErrUser, name)
		}
		return without(data, name), nil
	}, name)
}

// Users lists the users of a file, in its order.
func Users(path string) ([]User, error) { return readUsers(path, passwordCost) }

// edit replaces a file by what change makes of it. The new file, made exclusively, is also the lock.
func edit(path string, change func(data []byte, there bool) ([]byte, error), name string) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	next := path + ".new"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("users' file: %s exists: somebody is changing the users now; if not, a change was cut short: remove it", next)
	case err != nil:
		return fmt.Errorf("users' file: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
			_ = os.Remove(next) // the lock; the error on its way says more
		}
	}()
	data, err := readPrivate(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	users, err := parseUsers(data, passwordCost)
	if err != nil {
		return fmt.Errorf("users' file %s, %w", path, err)
	}
	_, there := findUser(users, name)
	if data, err = change(data, there); err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil {
		err = errors.Join(file.Sync(), file.Close())
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("users' file: %w", err)
	}
	return nil
}

// without leaves out the line of a user. The data has been parsed before.
func without(data []byte, name string) (rest []byte) {
	for line := range bytes.Lines(data) {
		if holdsUser(line) {
			if members, err := parseMembers(line); err == nil && members["name"] == name {
				continue
			}
		}
		rest = append(rest, line...)
	}
	return rest
}
