package access

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsersFilesAreStrict(t *testing.T) {
	t.Parallel()
	password, token := fmt.Sprintf(`"password":%q`, annHash), fmt.Sprintf(`"token":"sha256:%s"`, bot.token.hex())
	other, err := hashPassword(secret, testCost+1)
	if err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		`{"name":"a","role":"viewer",` + password + `,"admin":"yes"}`:                      `line 1: unknown member "admin"`,
		"# people\n\n" + `{"name":"a","role":"viewer",` + password + `,"Role":"operator"}`: `line 3: unknown member "Role"`,
		`{"name":"a","role":"viewer",` + password + `,"role":"operator"}`:                  `member "role" comes twice`,
		`{"name":"a","role":"root",` + password + `}`:                                      "role must be viewer or operator",
		`{"name":"a",` + password + `}`:                                                    "role must be",
		`{"name":"Ann","role":"viewer",` + password + `}`:                                  "name must be",
		`{"name":"","role":"viewer",` + password + `}`:                                     "name must be",
		`{"name":"a","role":"viewer"}`:                                                     "either password or token",
		`{"name":"a","role":"viewer",` + password + "," + token + `}`:                      "either password or token",
		`{"name":"a","role":"viewer","password":""}`:                                       "not a bcrypt hash",
		`{"name":"a","role":"viewer","password":"` + secret + `"}`:                         "not a bcrypt hash",
		`{"name":"a","role":"viewer","password":"` + other + `"}`:                          "cost 5, must be 4",
		`{"name":"a","role":"viewer","token":"sha256:00"}`:                                 "64 hex digits",
		`{"name":"a","role":"viewer","token":"` + bot.token.hex() + `"}`:                   "64 hex digits",
		`{"name":"a","role":1,` + password + `}`:                                           `member "role" must be a string`,
		`{"name":"a","role":{"x":"y"},` + password + `}`:                                   `member "role" must be a string`,
		`[]`:          "not a JSON object",
		`{"name":"a"`: "not JSON",
		`{"name":"a","role":"viewer",` + password + `} {}`:                                                 "something follows",
		`{"name":"a","role":"viewer",` + password + "}\n" + `{"name":"a","role":"operator",` + token + `}`: "line 2: user a is in line 1 already",
		"admin:" + annHash: "line 1: not a JSON object",
	} {
		users, err := parseUsers([]byte(text), testCost)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v %v, want %q", text, users, err, says)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), annHash) {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

func TestUsersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("# people\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := AddToken(path, "bot", Viewer, false)
	if err != nil || !strings.HasPrefix(token, tokenPrefix) || len(token) < 50 {
		t.Fatalf("%q %v", token, err)
	}
	if err := AddUser(path, "ann", Operator, secret, false); err != nil {
		t.Fatal(err)
	}
	if err := AddUser(path, "ann", Viewer, secret, false); !errors.Is(err, ErrUser) {
		t.Errorf("again: %v", err)
	}
	if err := RemoveUser(path, "nobody"); !errors.Is(err, ErrUser) {
		t.Errorf("removing nobody: %v", err)
	}
	second, err := AddToken(path, "bot", Operator, true)
	if err != nil || second == token {
		t.Fatalf("replaced: %v", err)
	}
	users, err := Users(path)
	if err != nil || len(users) != 2 || users[0].actor() != (Actor{"ann", Operator, ViaPassword}) || users[1].actor() != (Actor{"bot", Operator, ViaToken}) {
		t.Fatalf("%v %v", users, err)
	}
	if _, ok := findToken(users, token); ok {
		t.Error("the replaced token still works")
	}
	if err := RemoveUser(path, "Ann"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "# people\n\n{") || strings.Contains(string(text), "ann") || strings.Contains(string(text), second) {
		t.Errorf("the file: %s %v", text, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
}

func TestUsersFilesAreNotOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("{}\n"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(link, "bot", Viewer, false); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a broken file: %v", err)
	}
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.WriteFile(file+".new", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(link, "bot", Viewer, false); err == nil || !strings.Contains(err.Error(), file+".new") {
		t.Errorf("somebody else changes it: %v", err)
	}
	if err := errors.Join(os.Remove(file+".new"), os.Chmod(file, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(link, "bot", Viewer, false); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v %v", info, err)
	}
	for _, mode := range []os.FileMode{0o604, 0o602, 0o620, 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Users(link); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestPasswordsHaveBounds(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "tiny", "elevenchars", strings.Repeat("x", 73), "with\x00zero bytes", "ann-1234567890"} {
		if err := CheckPassword("ann", bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{secret, "пароль из слов", GeneratePassword()} {
		if err := CheckPassword("ann", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if a, b := GeneratePassword(), GeneratePassword(); a == b {
		t.Error("generated passwords repeat")
	}
}
