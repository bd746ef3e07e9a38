package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
)

const (
	// DefaultTimeout is the default of ClientOptions.Timeout.
	DefaultTimeout = 10 * time.Second

	maxAnswer = 64 << 10 // bytes of a body that are read
	redacted  = "REDACTED"

	replayHeader = "Idempotent-Replayed" // some providers mark a stored answer so
)

// ClientOptions are the settings of a Client.
type ClientOptions struct {
	// URL is the provider's base URL, http or https. Credentials in it are sent as basic authentication, a query
	// with every call. Empty is good enough to publish and to describe kinds: each call is then misconfigured.
	URL string
	// Timeout bounds one call, its whole body included; DefaultTimeout. The attempt's own deadline cuts it.
	Timeout time.Duration
	// Base sends the requests, below the send gate; nil is a private copy of http.DefaultTransport.
	// See consumer.Transport.
	Base http.RoundTripper
	// Authorize, if it is set, adds credentials to each request right before it goes to the send gate: a token that
	// rotates, a signature. It may change headers and the query, replaces the credentials of URL if it sets
	// Authorization, and may block until ctx ends, which Timeout bounds together with the call. It is called
	// concurrently, for look-ups as well, and never twice for one request.
	//
	// After an error nothing is sent, so the job is tried again after a back-off and it costs no failure. The error's
	// text is stored and logged: it must hold no secret. A 401 has applied nothing either, but is waited for as
	// Misconfigured is, so Authorize should renew a token before it expires and not after it was refused.
	Authorize func(ctx context.Context, req *http.Request) error
}

// Client calls a provider by the rules of the package comment. It follows no redirect, repeats nothing and keeps
// no cookies. It is safe for concurrent use and shows its URL without secrets, however it is printed.
type Client struct {
	base      *url.URL // without credentials; nil if there is no URL
	user      *url.Userinfo
	timeout   time.Duration
	authorize func(context.Context, *http.Request) error // nil: URL has the credentials, if there are any
	transport *consumer.Transport                        // used without an http.Client, which would follow redirects
}

// NewClient makes a client; nothing is called yet. An error names what is wrong with the URL and does not quote
// it.
func NewClient(o ClientOptions) (*Client, error) {
	c := &Client{timeout: o.Timeout, authorize: o.Authorize, transport: &consumer.Transport{Base: o.Base}}
	if o.Timeout < 0 {
		return nil, errors.New("provider timeout must not be negative")
	}
	if o.Timeout == 0 {
		c.timeout = DefaultTimeout
	}
	if o.URL == "" {
		return c, nil
	}
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, fmt.Errorf("provider URL: %w", err)
	}
	c.user, base.User = base.User, nil
	c.base = base
	return c, nil
}

func parseBase(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a URL") // the parser's text may quote a password
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("it must begin with http:// or https://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("it names no host")
	}
	u.Fragment = ""
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// Identity names the provider for the rows: its base URL without credentials and query. A change of it counts
// as another provider, to which no key is known.
func (c *Client) Identity() string {
	if c.base == nil {
		return ""
	}
	u := *c.base
	u.RawQuery = ""
	return u.String()
}

// String shows the base URL without credentials and values of the query.
func (c *Client) String() string {
	if c.base == nil {
		return "provider without a URL"
	}
	u := *c.base
	if c.user != nil {
		u.User = url.UserPassword(redacted, redacted)
	}
	query := u.Query()
	for name := range query {
		query[name] = []string{redacted}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// GoString is String: %#v must not show the password either.
func (c *Client) GoString() string { return c.String() }

// Close closes the connections that no call uses. Calls may still follow.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// call is one request to the provider.
type call struct {
	method   string
	path     []string // segments; escaped when sent
	route    string   // the path as error texts show it, without ids
	query    url.Values
	key      string // Idempotency-Key; empty: none is sent
	body     any    // JSON; nil: none. A rawBody is sent as it is
	header   http.Header
	deadline time.Time
}

// rawBody is a body that is encoded already.
type rawBody []byte

func (c call) String() string { return c.method + " " + c.route }

// do makes one call and reads its answer, up to a bound. An error means that there is no answer at all.
func (c *Client) do(ctx context.Context, call call) (answer, error) {
	until := time.Now().Add(c.timeout)
	if !call.deadline.IsZero() && call.deadline.Before(until) {
		until = call.deadline
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	req, err := c.request(ctx, call)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", call, err)
	}
	if err := c.addCredentials(req); err != nil {
		return answer{}, fmt.Errorf("%s: %w", call, err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", call, failure(err))
	}
	defer func() { _ = resp.Body.Close() }() // what matters of it has been read
	a := answer{call: call.String(), status: resp.StatusCode, retryAfter: retryAfter(resp.Header),
		replayed: strings.EqualFold(resp.Header.Get(replayHeader), "true")}
	a.body, a.broken = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if len(a.body) > maxAnswer {
		a.body, a.broken = a.body[:maxAnswer], errTooLarge
	}
	return a, nil
}

func (c *Client) request(ctx context.Context, call call) (*http.Request, error) {
	if c.base == nil {
		return nil, consumer.Misconfigured(errors.New("no provider URL is set"))
	}
	var body io.Reader
	if call.body != nil {
		raw, err := encode(call.body)
		if err != nil {
			return nil, consumer.NotSent(fmt.Errorf("encode request: %w", err))
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, call.method, c.address(call), body)
	if err != nil {
		return nil, consumer.NotSent(errors.New("request cannot be made")) // the text would quote the URL
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if call.key != "" {
		req.Header.Set("Idempotency-Key", call.key)
	}
	if c.user != nil {
		password, _ := c.user.Password()
		req.SetBasicAuth(c.user.Username(), password)
	}
	maps.Copy(req.Header, call.header)
	return req, nil
}

func encode(body any) ([]byte, error) {
	if raw, ok := body.(rawBody); ok {
		return raw, nil
	}
	return json.Marshal(body)
}

// addCredentials runs before the send gate, because it may take its time: between the gate and the socket nothing may.
func (c *Client) addCredentials(req *http.Request) error {
	if c.authorize == nil {
		return nil
	}
	err := c.authorize(req.Context(), req)
	if err == nil {
		return nil
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = &callError{text: describe(err), err: err} // net/http's text would quote the URL, and what stands in it
	}
	return consumer.NotSent(fmt.Errorf("authorize: %w", err))
}

// address is where a call goes. Ids are escaped as a whole, so that none can leave its place in the path.
func (c *Client) address(call call) string {
	u := *c.base
	path, raw := u.Path, u.EscapedPath()
	for _, segment := range call.path {
		path += "/" + segment
		raw += "/" + url.PathEscape(segment)
	}
	u.Path, u.RawPath = path, raw
	if len(call.query) > 0 {
		query := u.Query()
		for name, values := range call.query {
			query[name] = values
		}
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// userAgent names the program and its process, so that a provider's log tells workers apart.
var userAgent = fmt.Sprintf("settle (pid %d)", os.Getpid())
