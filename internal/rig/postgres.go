package rig

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// PostgresProxy is a Proxy before Postgres that understands the wire protocol well enough to cut around a COMMIT.
type PostgresProxy struct {
	*Proxy
	config *pgconn.Config
	shots  magazine[transaction]
}

// CommitCut says which COMMIT is meant.
type CommitCut struct {
	// Containing is a text that a statement of the transaction must contain, such as the comment that a statement
	// begins with ("/* settle:save */"). A transaction without BEGIN, committed by the protocol's Sync, counts only
	// where a text is given. Empty: every explicit COMMIT.
	Containing string
	// Skip lets that many such commits pass first.
	Skip int
	// Do, if set, runs right before the cut, while the client knows nothing yet: the place to kill or stop it.
	Do func()
}

// NewPostgresProxy starts a proxy before the server of databaseURL, which may be of either form that Postgres knows
// and may name a unix socket.
func NewPostgresProxy(t testing.TB, databaseURL string) *PostgresProxy {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal("postgres proxy: the database URL cannot be parsed") // the error would show its password
	}
	upstream := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if strings.HasPrefix(config.Host, "/") {
		upstream = config.Host + "/.s.PGSQL." + strconv.Itoa(int(config.Port))
	}
	p := &PostgresProxy{config: config}
	p.Proxy = startProxy(t, upstream, func() tap { return newPostgresTap(&p.shots) })
	return p
}

// URL is the database URL that leads through the proxy. TLS is off in it, because the proxy must read along.
func (p *PostgresProxy) URL() string {
	q := url.Values{"sslmode": {"disable"}}
	for name, value := range p.config.RuntimeParams {
		q.Set(name, value)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(p.config.User, p.config.Password),
		Host: p.Addr(), Path: "/" + p.config.Database, RawQuery: q.Encode(),
	}
	return u.String()
}

// DropCommitAnswer arms one cut between a commit and its answer: the server has committed, the client cannot know.
// A COMMIT that the server turns into a rollback is let through, and the shot stays armed.
func (p *PostgresProxy) DropCommitAnswer(c CommitCut) *Shot { return p.arm(c, false) }

// CutBeforeCommit arms one cut right before a commit: all that came before it reaches the server, the commit does not.
// Unless the client is gone before, the server has rolled back and its session is over when the shot has fired.
func (p *PostgresProxy) CutBeforeCommit(c CommitCut) *Shot { return p.arm(c, true) }

func (p *PostgresProxy) arm(c CommitCut, before bool) *Shot {
	hits := func(tx transaction) bool { return tx.contains(c.Containing) }
	return p.shots.arm(&aimed[transaction]{hits: hits, skip: c.Skip, before: before}, c.Do)
}
