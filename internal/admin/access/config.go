package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"runtime"
	"time"
)

// The defaults of [Config].
const (
	DefaultIdle     = time.Hour
	DefaultLifetime = 12 * time.Hour
	DefaultMaxBody  = 64 << 10 // bytes
)

// Config says who is let in. Users or Proxy.UserHeader is required; with both, a proxy's header counts first.
type Config struct {
	// Users is the path of the users' file, see [AddUser]. It is read again whenever it changed.
	Users string

	// Proxy says which proxies are believed, and what.
	Proxy Proxy

	// CertFile and KeyFile make the listener speak TLS, 1.2 or later: PEM, both or none. They are read
	// again when they change; while they do not fit, the pair before is served.
	CertFile, KeyFile string

	// Idle ends a session that nobody used for that long; a page that refreshes itself does not use it. Lifetime ends it
	// however much it is used. Defaults: DefaultIdle, DefaultLifetime.
	Idle, Lifetime time.Duration

	// MaxBody is the longest request body, in bytes. Default: DefaultMaxBody.
	MaxBody int64

	// Logger gets sign-ins, sign-outs and refusals, without secrets. Default: slog.Default().
	Logger *slog.Logger

	now  func() time.Time // for tests
	cost int              // of bcrypt, for tests
}

// Proxy lists the proxies in front of the screen.
type Proxy struct {
	// From holds their addresses. Their X-Forwarded-For and X-Forwarded-Proto are believed, and nobody else's.
	From []netip.Prefix

	// UserHeader is the header in which they name the user whom they have signed in; empty: they sign in nobody. They
	// must remove it from what clients send.
	UserHeader string

	// GroupsHeader is the header with the user's groups, separated by commas; one of them being OperatorGroup makes an
	// operator. Without it everybody is a viewer.
	GroupsHeader  string
	OperatorGroup string // default: operator
}

// Access lets requests in, or not. Create it with [New]; its methods may be called at the same time.
type Access struct {
	config   Config
	tls      *tls.Config // nil without certificate
	log      *slog.Logger
	users    *usersFile // nil without users of its own
	sessions *sessions
	attempts *attempts
	origin   *http.CrossOriginProtection
	nobody   string        // the hash of a password that nobody knows
	hashing  chan struct{} // bounds how many passwords are hashed at once: each takes a core for a quarter of a second
}

// New checks the configuration and reads the users' file and the certificate. It starts nothing.
func New(c Config) (*Access, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	a := &Access{
		config: c, log: c.Logger,
		sessions: newSessions(c.Idle, c.Lifetime), attempts: newAttempts(),
		origin: http.NewCrossOriginProtection(), hashing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
	if c.CertFile != "" {
		cert, err := openCertificate(c.CertFile, c.KeyFile, c.Logger)
		if err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.get}
	}
	if c.Users != "" {
		var err error
		if a.users, err = openUsers(c.Users, c.cost); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
		if a.nobody, err = hashPassword(randomText(), c.cost); err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
	}
	return a, nil
}

func (c Config) withDefaults() Config {
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Lifetime == 0 {
		c.Lifetime = DefaultLifetime
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Proxy.OperatorGroup == "" {
		c.Proxy.OperatorGroup = string(Operator)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.cost == 0 {
		c.cost = passwordCost
	}
	c.Proxy.UserHeader = http.CanonicalHeaderKey(c.Proxy.UserHeader)
	c.Proxy.GroupsHeader = http.CanonicalHeaderKey(c.Proxy.GroupsHeader)
	return c
}

// headerName leaves out underscores: some proxies take them for hyphens, so that two headers become one.
var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)

func (c Config) check() error {
	p := c.Proxy
	switch {
	case c.Users == "" && p.UserHeader == "":
		return errors.New("nobody could sign in: name a users' file, or the proxies and the header in which they name the user")
	case p.UserHeader != "" && len(p.From) == 0:
		return fmt.Errorf("header %s would be believed from nobody: list the proxies that send it", p.UserHeader)
	case p.GroupsHeader != "" && p.UserHeader == "":
		return fmt.Errorf("header %s gives groups to nobody: name the header with the user, too", p.GroupsHeader)
	case p.UserHeader != "" && !ownHeader(p.UserHeader):
		return fmt.Errorf("header %q cannot name a user: take one like X-Forwarded-User", p.UserHeader)
	case p.GroupsHeader != "" && (!ownHeader(p.GroupsHeader) || p.GroupsHeader == p.UserHeader):
		return fmt.Errorf("header %q cannot hold groups: take one like X-Forwarded-Groups", p.GroupsHeader)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("certificate and key are only of use together")
	case c.Idle < time.Second || c.Lifetime < time.Second:
		return errors.New("idle time and lifetime of a session must be at least 1s")
	}
	for _, prefix := range p.From {
		if prefix.Bits() == 0 {
			return fmt.Errorf("proxies %s are everybody: list the addresses of your own", prefix)
		}
	}
	return nil
}

// ownHeader refuses headers that have a meaning of their own.
func ownHeader(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Host", "Origin", "Connection", "X-Forwarded-For", "X-Forwarded-Proto", "Sec-Fetch-Site":
		return false
	}
	return headerName.MatchString(name)
}
