package rig

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const soon = 10 * time.Second

// echo is a server that sends back what it receives, line by line.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
	return listener.Addr().String()
}

// client is a connection that speaks in lines.
type client struct {
	t *testing.T
	*net.TCPConn
	in *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTCP("tcp", nil, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t: t, TCPConn: c, in: bufio.NewReader(c)}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *client) readWithin(d time.Duration) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.t.Helper()
	c.readWithin(soon)
	if got, err := c.in.ReadString('\n'); err != nil || got != want+"\n" {
		c.t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// hearNothing waits a moment, in which nothing may arrive.
func (c *client) hearNothing() {
	c.t.Helper()
	c.readWithin(100 * time.Millisecond)
	if got, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %q, %v; want nothing", got, err)
	}
}

func (c *client) hearEnd() {
	c.t.Helper()
	c.readWithin(soon)
	if got, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %q, %v; want the end of the connection", got, err)
	}
}

func TestProxyPausesAndResumesInOrder(t *testing.T) {
	pauses := map[string]func(*Proxy){
		"both ways":        (*Proxy).Pause,
		"client to server": (*Proxy).PauseClientToServer,
		"server to client": (*Proxy).PauseServerToClient,
	}
	for name, pause := range pauses {
		t.Run(name, func(t *testing.T) {
			p := NewProxy(t, echo(t))
			c := dial(t, p)
			c.say("one")
			c.hear("one")
			pause(p)
			c.say("two")
			c.say("three")
			c.hearNothing()
			p.Resume()
			c.hear("two")
			c.hear("three")
		})
	}
}

func TestProxyCutsOpenConnectionsOnly(t *testing.T) {
	p := NewProxy(t, echo(t))
	old := dial(t, p)
	old.say("one")
	old.hear("one")
	p.Cut()
	old.hearEnd()
	next := dial(t, p)
	next.say("two")
	next.hear("two")
	Eventually(t, soon, "the cut connection is gone", func() bool { return p.Connections() == 1 })
}

func TestProxyCutLosesWhatAPauseHolds(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	c.say("one")
	c.hear("one")
	p.PauseServerToClient()
	c.say("two")
	c.hearNothing()
	p.Cut()
	p.Resume()
	c.hearEnd()
}

func TestProxyRefusesNewConnectionsOnly(t *testing.T) {
	p := NewProxy(t, echo(t))
	old := dial(t, p)
	old.say("one")
	old.hear("one")
	p.Refuse(true)
	dial(t, p).hearEnd()
	old.say("two")
	old.hear("two")
	p.Refuse(false)
	next := dial(t, p)
	next.say("three")
	next.hear("three")
}

func TestProxyPassesTheEndOfOneDirection(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	c.say("one")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.hear("one")
	c.hearEnd()
	Eventually(t, soon, "the connection is gone", func() bool { return p.Connections() == 0 })
}

func TestProxyWithoutUpstreamClosesConnections(t *testing.T) {
	dial(t, NewProxy(t, "/nowhere/.s.PGSQL.5432")).hearEnd()
}

func TestProxyLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("use", func(t *testing.T) {
		p := NewProxy(t, echo(t))
		c := dial(t, p)
		p.Pause()
		c.say("held for ever")
		c.hearNothing()
	})
	goleak.VerifyNone(t, before)
}

// firstMessage is a tap whose first message is a line, at which the connection is cut.
type firstMessage struct{ *Shot }

func (firstMessage) sizeFromClient(b []byte) int                 { return bytes.IndexByte(b, '\n') + 1 }
func (firstMessage) sizeFromServer(b []byte) int                 { return len(b) }
func (f firstMessage) fromClient([]byte) (out []byte, cut *Shot) { return nil, f.Shot }
func (firstMessage) fromServer(m []byte) (out []byte, cut *Shot) { return m, nil }

// What a client sends in one go is still being worked on when it is cut off: in Postgres it may even hold locks.
func TestCutFiresWhenTheServerIsDone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	shot := &Shot{fired: make(chan struct{})}
	c := dial(t, startProxy(t, listener.Addr().String(), func() tap { return firstMessage{shot} }))
	c.say("commit")
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if came, err := io.ReadAll(server); len(came) > 0 || err != nil {
		t.Errorf("the server read %q, %v; want nothing and the end", came, err)
	}
	if _, err := io.WriteString(server, "still at work\n"); err != nil {
		t.Error(err)
	}
	c.hear("still at work")
	select {
	case <-shot.Fired():
		t.Error("fired while the server is at work")
	default:
	}
	server.Close()
	Await(t, shot.Fired(), soon, "the cut when the server is done")
}
