package main

import (
	"net/url"
	"regexp"
	"strings"
)

const (
	masked     = "xxxxx"
	unreadable = "(unreadable, not shown)"
)

// maskURL makes connection settings fit to be shown: one URL, several separated by commas (NATS), or keyword=value
// pairs (Postgres). It shows only what it understands: a password with a character that should have been escaped
// ends up in any part of a URL, so text that is not clean is not shown at all.
func maskURL(s string) string {
	switch {
	case s == "":
		return ""
	case strings.HasPrefix(s, "postgres://"), strings.HasPrefix(s, "postgresql://"):
		return maskOne(s) // several hosts are one URL here
	case !strings.Contains(s, "://") && strings.Contains(s, "="):
		return maskPairs(s)
	}
	parts := strings.Split(s, ",")
	for i, part := range parts {
		parts[i] = maskServer(strings.TrimSpace(part))
		if parts[i] == unreadable {
			return unreadable
		}
	}
	return strings.Join(parts, ",")
}

// maskServer takes a URL, or host:port as NATS does.
func maskServer(s string) string {
	if strings.Contains(s, "://") {
		return maskOne(s)
	}
	return strings.TrimPrefix(maskOne("nats://"+s), "nats://")
}

func maskOne(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || strings.Count(s, "@") > 1 || strings.Contains(s, "@") && u.User == nil {
		return unreadable
	}
	u.Fragment, u.RawFragment = "", ""
	if u.User != nil {
		u.User = maskUser(u.User, strings.HasPrefix(u.Scheme, "postgres"))
	}
	if u.RawQuery != "" {
		query := u.Query()
		for name, values := range query {
			query.Set(name, shown(name, values[0]))
		}
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// maskUser keeps the name only where it surely is one: outside Postgres, a user without a password is a token.
func maskUser(user *url.Userinfo, nameAlone bool) *url.Userinfo {
	if _, has := user.Password(); has {
		return url.UserPassword(user.Username(), masked)
	}
	if nameAlone {
		return user
	}
	return url.User(masked)
}

var pair = regexp.MustCompile(`([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:\\.|[^\s\\'])*)`)

func maskPairs(s string) string {
	var out []string
	for _, m := range pair.FindAllStringSubmatch(s, -1) {
		out = append(out, m[1]+"="+shown(m[1], m[2]))
	}
	return strings.Join(out, " ")
}

// harmless are the settings whose values may be shown.
var harmless = map[string]bool{
	"host": true, "hostaddr": true, "port": true, "user": true, "dbname": true, "database": true, "sslmode": true,
	"application_name": true, "connect_timeout": true, "target_session_attrs": true, "pool_max_conns": true,
	"default_query_exec_mode": true,
}

func shown(name, value string) string {
	if harmless[name] && !strings.ContainsAny(value, "@:") {
		return value
	}
	return masked
}
