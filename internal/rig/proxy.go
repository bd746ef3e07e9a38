package rig

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy passes TCP connections on to one upstream address, and breaks them on demand. Connections that the proxy
// was not told to break behave as without it: an end of stream in one direction is passed on and the other
// direction stays usable.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	upstream string
	newTap   func() tap // nil: bytes pass unread
	toServer gate
	toClient gate

	mu       sync.Mutex
	refusing bool
	closed   bool
	links    map[*link]struct{}
	running  sync.WaitGroup // the accept loop and the connections
}

// NewProxy listens on a free port of 127.0.0.1 and passes connections on to upstream: "host:port", or the path of
// a unix socket, which begins with "/". The proxy ends with the test, which waits for its goroutines.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	return startProxy(t, upstream, nil)
}

func startProxy(t testing.TB, upstream string, newTap func() tap) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p := &Proxy{t: t, listener: listener, upstream: upstream, newTap: newTap, links: map[*link]struct{}{}}
	ctx, stopDialling := context.WithCancel(context.Background())
	p.running.Go(func() { p.accept(ctx) })
	t.Cleanup(func() {
		stopDialling()
		p.close()
	})
	return p
}

// Addr is the address to connect to, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Pause holds everything that is sent from now on, in both directions, ends of streams included. Connections stay
// open and new ones are accepted, as on a network that drops packets.
func (p *Proxy) Pause() {
	p.PauseClientToServer()
	p.PauseServerToClient()
}

// PauseClientToServer holds what clients send; answers still pass.
func (p *Proxy) PauseClientToServer() { p.toServer.shut() }

// PauseServerToClient holds what the server sends; requests still pass.
func (p *Proxy) PauseServerToClient() { p.toClient.shut() }

// Resume ends every pause and lets go what was held, in order.
func (p *Proxy) Resume() {
	p.toServer.reopen()
	p.toClient.reopen()
}

// Cut closes all open connections at both ends; what a pause holds is lost. New connections are accepted, unless
// Refuse(true) came before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse decides whether new connections are closed as soon as they are accepted. Open ones are left alone.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Connections is the number of connections open now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.t.Errorf("proxy for %s: accept: %v", p.upstream, err)
			return
		}
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.upstream, "/") {
		network = "unix"
	}
	server, err := new(net.Dialer).DialContext(ctx, network, p.upstream)
	if err != nil {
		client.Close() // an upstream that is down looks the same from the client's side
		return
	}
	l := newLink(client, server)
	if !p.add(l) {
		l.close()
		return
	}
	defer p.remove(l)
	var t tap
	if p.newTap != nil {
		t = p.newTap()
	}
	l.run(&p.toServer, &p.toClient, t)
}

// add decides under the lock, so that no connection slips through Refuse(true) followed by Cut.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing || p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
