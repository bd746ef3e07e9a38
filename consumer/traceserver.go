package consumer

import (
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
)

// peer is what spans say of the server at the other end of a connection, and of the connection itself. It is worked out once
// for each server that the connection meets. A span that nobody records asks for none of it.
type peer struct {
	conn  *nats.Conn // nil: there is none
	known atomic.Pointer[met]
}

// met is a server that was met by a connection.
type met struct {
	server string // its own id, which another process at the same address has not
	client uint64 // the connection's number there
	attrs  []attribute.KeyValue
}

var noPeer = &met{}

// now is the server of this moment; noPeer if the connection is down.
func (p *peer) now() *met {
	server := p.conn.ConnectedServerId()
	if server == "" {
		return noPeer
	}
	client, err := p.conn.GetClientID()
	if err != nil {
		return noPeer
	}
	m := p.known.Load()
	if m == nil || m.server != server || m.client != client {
		m = &met{server, client, peerAttributes(p.conn.ConnectedUrl(), p.conn.Opts.Name, client)}
		p.known.Store(m)
	}
	return m
}

// peerAttributes never show who signed in, which the URL may hold.
func peerAttributes(server, name string, client uint64) []attribute.KeyValue {
	id := strconv.FormatUint(client, 10)
	if name != "" {
		id = name + "/" + id
	}
	attrs := []attribute.KeyValue{attribute.String(attrClient, id)}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return attrs
	}
	attrs = append(attrs, attribute.String(attrServer, u.Hostname()))
	if port, err := strconv.Atoi(u.Port()); err == nil {
		attrs = append(attrs, attribute.Int(attrPort, port))
	}
	return attrs
}
