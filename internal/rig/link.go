package rig

import (
	"errors"
	"io"
	"net"
	"sync"
)

// link is one proxied connection.
type link struct {
	client, server net.Conn
	done           chan struct{} // closed by close
	once           sync.Once
	answered       chan struct{} // closed when nothing more comes from the server
}

func newLink(client, server net.Conn) *link {
	return &link{client: client, server: server, done: make(chan struct{}), answered: make(chan struct{})}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

// run passes both directions on until both have ended.
func (l *link) run(toServer, toClient *gate, t tap) {
	up, down := untapped, untapped
	if t != nil {
		up = (&messages{size: t.sizeFromClient, see: t.fromClient}).pass
		down = (&messages{size: t.sizeFromServer, see: t.fromServer}).pass
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(l.client, l.server, toServer, up, l.end) })
	both.Go(func() {
		defer close(l.answered)
		l.pump(l.server, l.client, toClient, down, l.close)
	})
	both.Wait()
	l.close()
}

// end tells the server that no more comes, and closes the link when the server has worked off what came before: what
// a client sent in one go is still being worked on when its last byte has left.
func (l *link) end() {
	closeWrite(l.server)
	select {
	case <-l.answered:
	case <-l.done:
	}
	l.close()
}

// pump passes one direction on. An end of stream is passed on as such; anything else that goes wrong ends the link.
func (l *link) pump(from, to net.Conn, g *gate, pass passer, cut func()) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !g.wait(l.done) {
			return
		}
		out, shot := pass(buf[:n])
		if _, writeErr := to.Write(out); writeErr != nil {
			l.close()
		}
		if shot != nil {
			shot.fire(cut)
			return
		}
		if errors.Is(err, io.EOF) {
			closeWrite(to)
			return
		}
		if err != nil {
			l.close()
			return
		}
	}
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it fails only if the connection is gone, which the other direction notices
	}
}

// passer turns bytes that were read into bytes to write. With a shot, the link is cut after they were written.
type passer func(b []byte) (out []byte, shot *Shot)

func untapped(b []byte) ([]byte, *Shot) { return b, nil }

// tap reads along one connection, message by message. Its two directions run at the same time.
type tap interface {
	// sizeFromClient and sizeFromServer give the length of the first message in b, or 0 if its end is not there yet.
	sizeFromClient(b []byte) int
	sizeFromServer(b []byte) int
	// fromClient and fromServer see one message and say what is written now; with a shot, the link is cut after that.
	fromClient(message []byte) (out []byte, shot *Shot)
	fromServer(message []byte) (out []byte, shot *Shot)
}

// messages cuts one direction's bytes into whole messages.
type messages struct {
	size    func(b []byte) int
	see     func(message []byte) (out []byte, shot *Shot)
	pending []byte
}

func (m *messages) pass(b []byte) (out []byte, shot *Shot) {
	m.pending = append(m.pending, b...)
	for shot == nil {
		n := m.size(m.pending)
		if n == 0 || n > len(m.pending) {
			break
		}
		var forward []byte
		forward, shot = m.see(m.pending[:n])
		out = append(out, forward...)
		m.pending = m.pending[n:]
	}
	return out, shot
}
