package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// User is a line of the users' file: one JSON object with the members name, role, and either password (a bcrypt hash) or
// token (the SHA-256 of a bearer token). Empty lines and lines that begin with # are left alone.
type User struct {
	Name string // lower case, up to 64 characters
	Role Role

	password string // bcrypt
	token    digest // where there is no password
}

// Via says how the user comes in: [ViaPassword] or [ViaToken].
func (u User) Via() Via {
	if u.password != "" {
		return ViaPassword
	}
	return ViaToken
}

func (u User) actor() Actor { return Actor{u.Name, u.Role, u.Via()} }

// userName has no capitals, so that a telephone that writes Ann finds ann.
var userName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@+-]{0,63}$`)

// CheckUser says what is wrong with a name in a users' file, or with a role.
func CheckUser(name string, role Role) error {
	switch {
	case !userName.MatchString(name):
		return errors.New("name must be 1 to 64 of a-z, 0-9 and . _ @ + -, and begin with a letter or digit")
	case role != Viewer && role != Operator:
		return fmt.Errorf("role must be %s or %s", Viewer, Operator)
	}
	return nil
}

// parseUsers reads the lines of a users' file. Errors name the line and hold nothing secret.
func parseUsers(data []byte, cost int) (users []User, err error) {
	seen := map[string]int{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if !holdsUser(line) {
			continue
		}
		u, err := parseUser(line, cost)
		if err == nil && seen[u.Name] != 0 {
			err = fmt.Errorf("user %s is in line %d already", u.Name, seen[u.Name])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		seen[u.Name] = number
		users = append(users, u)
	}
	return users, nil
}

func holdsUser(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

func parseUser(line []byte, cost int) (u User, err error) {
	members, err := parseMembers(line)
	if err != nil {
		return u, err
	}
	u = User{Name: members["name"], Role: Role(members["role"]), password: members["password"]}
	if err := CheckUser(u.Name, u.Role); err != nil {
		return u, err
	}
	token, hasToken := members["token"]
	switch _, hasPassword := members["password"]; {
	case hasPassword == hasToken:
		return u, errors.New("either password or token is needed")
	case hasToken:
		u.token, err = parseTokenHash(token)
	default:
		err = checkHash(u.password, cost)
	}
	return u, err
}

// parseMembers reads one flat object of strings. encoding/json by itself would let a repeated member, or another case of
// one, win over the one that a reader of the file sees.
func parseMembers(line []byte) (map[string]string, error) {
	in := json.NewDecoder(bytes.NewReader(line))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	members := map[string]string{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, errors.New("not JSON")
		}
		value, err := in.Token()
		text, isText := value.(string)
		switch _, again := members[name.(string)]; { //nolint:errcheck // names of members are strings, or Token failed
		case err != nil:
			return nil, errors.New("not JSON")
		case again:
			return nil, fmt.Errorf("member %q comes twice", name)
		case name != "name" && name != "role" && name != "password" && name != "token":
			return nil, fmt.Errorf("unknown member %.40q", name)
		case !isText:
			return nil, fmt.Errorf("member %q must be a string", name)
		}
		members[name.(string)] = text //nolint:errcheck // see above
	}
	if _, err := in.Token(); err != nil {
		return nil, errors.New("not JSON")
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return members, nil
}

// line writes a user as it is read again.
func (u User) line() []byte {
	object := struct {
		Name     string `json:"name"`
		Role     Role   `json:"role"`
		Password string `json:"password,omitempty"`
		Token    string `json:"token,omitempty"`
	}{u.Name, u.Role, u.password, ""}
	if u.Via() == ViaToken {
		object.Token = tokenScheme + u.token.hex()
	}
	text, _ := json.Marshal(object) // strings only
	return text
}

// canonical is how a name is written in the file.
func canonical(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// findUser is the user of a name, in any case of its letters.
func findUser(users []User, name string) (User, bool) {
	name = canonical(name)
	for _, u := range users {
		if u.Name == name {
			return u, true
		}
	}
	return User{}, false
}

// findToken compares with every token, whatever it found, so that its time tells nothing.
func findToken(users []User, token string) (found User, ok bool) {
	sum := digestOf(token)
	for _, u := range users {
		if u.Via() == ViaToken && u.token.equal(sum) {
			found, ok = u, true
		}
	}
	return found, ok
}
