package rig

import (
	"encoding/binary"
	"strings"
	"sync"
)

// Codes that stand in the place of the protocol version in a connection's first message.
const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

// transaction is what a client has executed since its last commit or rollback.
type transaction struct {
	explicit bool // it was opened by BEGIN
	sql      []string
}

func (tx transaction) contains(text string) bool {
	if text == "" {
		return tx.explicit
	}
	for _, s := range tx.sql {
		if strings.Contains(s, text) {
			return true
		}
	}
	return false
}

// postgresTap follows one connection: which statement every portal executes, and where transactions end.
// Message formats: https://www.postgresql.org/docs/current/protocol-message-formats.html
type postgresTap struct {
	shots *magazine[transaction]

	mu         sync.Mutex
	started    bool              // the start-up message has been sent
	oneByte    bool              // the server answers a request for encryption with one byte
	opaque     bool              // the connection is encrypted: nothing can be read
	statements map[string]string // prepared statement → SQL
	portals    map[string]string // portal → SQL
	tx         transaction
	rounds     int // queries and Syncs sent: each is answered by one ReadyForQuery
	ready      int // such answers seen; the one that ends the start-up makes it 0

	target   *aimed[transaction] // a commit is on its way whose answer must not pass
	round    int                 // the round that the commit belongs to
	explicit bool                // it is a COMMIT, so that ReadyForQuery alone does not prove it
	held     []byte              // answers since it was sent
}

func newPostgresTap(shots *magazine[transaction]) *postgresTap {
	return &postgresTap{shots: shots, ready: -1, statements: map[string]string{}, portals: map[string]string{}}
}

func (p *postgresTap) sizeFromClient(b []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.opaque:
		return len(b)
	case !p.started:
		return messageSize(b, 0)
	}
	return messageSize(b, 1)
}

func (p *postgresTap) sizeFromServer(b []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.opaque:
		return len(b)
	case p.oneByte:
		return min(1, len(b))
	}
	return messageSize(b, 1)
}

// messageSize reads the length that follows a message's type, which is 0 or 1 bytes long.
func messageSize(b []byte, typeSize int) int {
	if len(b) < typeSize+4 {
		return 0
	}
	return typeSize + int(binary.BigEndian.Uint32(b[typeSize:]))
}

func (p *postgresTap) fromClient(m []byte) ([]byte, *Shot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.opaque:
		return m, nil
	case !p.started:
		p.startUp(m)
		return m, nil
	}
	if !p.commits(m) {
		return m, nil
	}
	tx := p.tx
	p.tx = transaction{}
	if p.target != nil {
		return m, nil // one at a time: this connection is about to be cut
	}
	target := p.shots.take(tx)
	if target == nil {
		return m, nil
	}
	if target.before {
		return nil, target.Shot
	}
	p.target, p.round, p.explicit = target, p.roundOf(m), tx.explicit
	return m, nil
}

func (p *postgresTap) startUp(m []byte) {
	code := uint32(0)
	if len(m) >= 8 {
		code = binary.BigEndian.Uint32(m[4:])
	}
	p.oneByte = code == sslRequest || code == gssEncRequest
	p.started = !p.oneByte
}

// roundOf is the number of the ReadyForQuery that answers m. A Sync or simple query has been counted already.
func (p *postgresTap) roundOf(m []byte) int {
	if m[0] == 'S' || m[0] == 'Q' {
		return p.rounds
	}
	return p.rounds + 1
}

// commits follows one message and reports whether it makes the server commit.
func (p *postgresTap) commits(m []byte) bool {
	body := m[5:]
	switch m[0] {
	case 'P': // Parse: statement, SQL
		name, rest := cstring(body)
		p.statements[name], _ = cstring(rest)
	case 'B': // Bind: portal, statement
		portal, rest := cstring(body)
		name, _ := cstring(rest)
		p.portals[portal] = p.statements[name]
	case 'E': // Execute: portal
		portal, _ := cstring(body)
		return p.executes(p.portals[portal])
	case 'Q': // simple query: SQL
		p.rounds++
		sql, _ := cstring(body)
		return p.executes(sql) || p.syncCommits()
	case 'S': // Sync ends a transaction that no BEGIN opened
		p.rounds++
		return p.syncCommits()
	}
	return false
}

// executes follows one execution and reports whether it is an explicit COMMIT.
func (p *postgresTap) executes(sql string) bool {
	p.tx.sql = append(p.tx.sql, sql)
	for _, statement := range strings.Split(sql, ";") {
		switch boundary(statement) {
		case within:
		case begins:
			p.tx.explicit = true
		case commits:
			return true
		case rollsBack:
			p.tx = transaction{}
		}
	}
	return false
}

func (p *postgresTap) syncCommits() bool { return !p.tx.explicit && len(p.tx.sql) > 0 }

func (p *postgresTap) fromServer(m []byte) ([]byte, *Shot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oneByte {
		p.oneByte, p.opaque = false, m[0] != 'N'
		return m, nil
	}
	if p.opaque {
		return m, nil
	}
	if m[0] == 'Z' { // ReadyForQuery
		p.ready++
	}
	if p.target == nil {
		return m, nil
	}
	return p.awaitCommit(m)
}

// awaitCommit holds the answers until it is known whether the commit took place.
func (p *postgresTap) awaitCommit(m []byte) ([]byte, *Shot) {
	p.held = append(p.held, m...)
	switch m[0] {
	case 'C': // CommandComplete: a COMMIT in a failed transaction is answered by ROLLBACK
		if p.ready == p.round-1 && string(m[5:]) == "COMMIT\x00" {
			return nil, p.target.Shot
		}
	case 'E': // ErrorResponse: the rest of the round is skipped, the commit with it
		if p.ready == p.round-1 {
			return p.letGo()
		}
	case 'Z':
		if p.ready == p.round && !p.explicit {
			return nil, p.target.Shot
		}
		if p.ready == p.round {
			return p.letGo()
		}
	}
	return nil, nil
}

// letGo passes on what was held, because the commit did not take place, and arms the shot again.
func (p *postgresTap) letGo() ([]byte, *Shot) {
	out := p.held
	p.shots.put(p.target)
	p.target, p.held = nil, nil
	return out, nil
}
