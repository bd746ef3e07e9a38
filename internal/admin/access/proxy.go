package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// peer is where a connection comes from.
type peer struct {
	addr    netip.Addr // the other end of the connection
	proxy   bool       // it is a listed one
	client  netip.Addr // whom a listed proxy speaks for, else addr
	secure  bool       // TLS, to us or to a listed proxy
	forward bool       // without TLS, but from this host or from a listed proxy
}

func (a *Access) peerOf(r *http.Request) peer {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // not valid: not a proxy, not loopback
	p := peer{addr: from.Addr().Unmap().WithZone(""), secure: r.TLS != nil}
	p.client = p.addr
	p.proxy = a.config.Proxy.lists(p.addr)
	p.forward = p.proxy || p.addr.IsLoopback()
	if p.proxy {
		p.client = a.config.Proxy.clientOf(r.Header.Values("X-Forwarded-For"), p.addr)
		p.secure = p.secure || only(r.Header.Values("X-Forwarded-Proto")) == "https"
	}
	return p
}

func (p Proxy) lists(addr netip.Addr) bool {
	return slices.ContainsFunc(p.From, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// clientOf reads X-Forwarded-For from its end: each listed proxy has appended whom it saw, and what stands before the
// first address that is no listed proxy was sent by that client, who may write there what he likes.
func (p Proxy) clientOf(forwarded []string, last netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			return last
		}
		last = addr.Unmap().WithZone("")
		if !p.lists(last) {
			return last
		}
	}
	return last
}

// only is the value of a header that came once.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// The refusals of a header that names a user.
var (
	errNotAProxy = errors.New("from an address that is no listed proxy")
	errTwice     = errors.New("more than once")
	errValue     = errors.New("not one name of 1 to 128 bytes")
)

// actorOf is whom a proxy has signed in; no error and no name: nobody. The header from anybody else is an error, not
// just ignored: either a client tries, or a proxy is missing in the list.
func (p Proxy) actorOf(r *http.Request, from peer) (Actor, error) {
	if p.UserHeader == "" {
		return Actor{}, nil
	}
	for _, name := range []string{p.UserHeader, p.GroupsHeader} {
		switch values := r.Header.Values(name); {
		case name == "" || len(values) == 0:
		case !from.proxy:
			return Actor{}, fmt.Errorf("header %s: %w", name, errNotAProxy)
		case len(values) > 1:
			return Actor{}, fmt.Errorf("header %s: %w", name, errTwice)
		}
	}
	values := r.Header.Values(p.UserHeader)
	if len(values) == 0 {
		return Actor{}, nil
	}
	name := strings.TrimSpace(values[0])
	// A comma is what a proxy makes of its own value behind one that the client sent.
	if name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.Contains(name, ",") || strings.ContainsFunc(name, isControl) {
		return Actor{}, fmt.Errorf("header %s: %w", p.UserHeader, errValue)
	}
	return Actor{Name: name, Role: p.roleOf(r), Via: ViaProxy}, nil
}

func (p Proxy) roleOf(r *http.Request) Role {
	if p.GroupsHeader == "" {
		return Viewer
	}
	for group := range strings.SplitSeq(r.Header.Get(p.GroupsHeader), ",") {
		if strings.TrimSpace(group) == p.OperatorGroup {
			return Operator
		}
	}
	return Viewer
}
