package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsersOfTheSupportScreen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "users")
	env := map[string]string{"SETTLE_ADMIN_USERS": path}
	const password = "correct horse battery"
	for _, c := range []struct {
		input string
		args  []string
		code  int
		says  string
	}{
		{"", []string{"list"}, exitFailed, "settle admin user add"},
		{"short\n", []string{"add", "ann"}, exitUsage, "at least 12"},
		{password, []string{"add", "Ann B"}, exitUsage, "name must be"},
		{password, []string{"add", "ann", "--role", "root"}, exitUsage, "viewer or operator"},
		{password, []string{"add"}, exitUsage, "NAME is missing"},
		{password, []string{"add", "ann", password}, exitUsage, "unexpected argument"},
		{"", []string{"add", "ann", "--token", "--generate"}, exitUsage, "exclude"},
		{password + "\r\n", []string{"add", "--role", "operator", "ann"}, exitDone, "ann is an operator"},
		{password, []string{"add", "ann"}, exitFailed, "there already"},
		{"", []string{"add", "--generate", "vic"}, exitDone, "shown once"},
		{"", []string{"add", "--token", "bot"}, exitDone, "shown once"},
		{"", []string{"remove", "vic"}, exitDone, "vic is removed"},
		{"", []string{"remove", "vic"}, exitFailed, "vic is not there"},
	} {
		code, out, errOut := runSettle(t, env, strings.NewReader(c.input), append([]string{"admin", "user"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: exit %d, %s, want %d, %q", c.args, code, errOut, c.code, c.says)
		}
		if text, _ := os.ReadFile(path); out != "" && strings.Contains(string(text), strings.TrimSpace(out)) {
			t.Errorf("%v: the file holds the secret %s", c.args, out)
		}
	}
	code, out, errOut := runSettle(t, env, nil, "admin", "user", "list", "--json")
	want := `{"name":"ann","role":"operator","via":"password"}` + "\n" + `{"name":"bot","role":"viewer","via":"token"}` + "\n"
	if code != exitDone || out != want {
		t.Errorf("exit %d, %s %s", code, out, errOut)
	}
	if code, _, errOut := runSettle(t, nil, nil, "admin", "user", "list"); code != exitUsage || !strings.Contains(errOut, "SETTLE_ADMIN_USERS") {
		t.Errorf("without a file: exit %d, %s", code, errOut)
	}
}

func TestProxiesOfTheSupportScreen(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"": "", "10.0.3.7, ::1,": "10.0.3.7/32 ::1/128", "10.1.2.3/24": "10.1.2.0/24"} {
		found, err := parseProxies(list)
		var texts []string
		for _, p := range found {
			texts = append(texts, p.String())
		}
		if err != nil || strings.Join(texts, " ") != want {
			t.Errorf("%q: %v %v", list, found, err)
		}
	}
	if _, err := parseProxies("10.0.0.1,proxy.example"); err == nil || !strings.Contains(err.Error(), "proxy.example") {
		t.Error(err)
	}
}

func TestTheSupportScreenRefusesToBeOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "settle admin user add"},
		{[]string{"--admin-users", path, "--admin-addr", ":0"}, "--admin-addr"},
		{[]string{"--admin-users", path, "--admin-proxies", "everybody"}, "--admin-proxies"},
		{[]string{"--admin-user-header", "X-User"}, "list the proxies"},
		{[]string{"--admin-users", path, "--admin-tls-cert", path}, "only of use together"},
		{[]string{"--admin-users", path + ".missing"}, "does not exist"},
		{[]string{"--admin-users", path, "--admin-session-idle", "1s"}, "SETTLE_ADMIN_SESSION_IDLE"},
	} {
		code, _, errOut := runSettle(t, nil, nil, append([]string{"admin"}, c.args...)...)
		if code != exitUsage || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: exit %d, %s, want %q", c.args, code, errOut, c.says)
		}
	}
}
