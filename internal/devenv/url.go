package devenv

import (
	"errors"
	"net/url"
	"strings"
)

// DatabaseURL returns the connection string of another database on the same server. It takes both forms that
// PostgreSQL knows, a URL and "host=… dbname=…". The error does not repeat the string, which holds a password.
func DatabaseURL(connString, name string) (string, error) {
	if !strings.Contains(connString, "://") {
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
		return connString + " dbname='" + quoted + "'", nil // the last one counts
	}
	u, err := url.Parse(connString)
	if err != nil {
		return "", errors.New("database URL: not a valid URL")
	}
	query := u.Query()
	query.Del("dbname") // would win over the path
	query.Del("database")
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", query.Encode()
	return u.String(), nil
}
