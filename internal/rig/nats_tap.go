package rig

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
)

// natsTap follows one connection. Protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol
type natsTap struct {
	proxy *NATSProxy

	mu     sync.Mutex
	target *aimed[Publication] // armed by a publication whose reply must not pass
	reply  string              // the subject of that reply
}

func (n *natsTap) sizeFromClient(b []byte) int { return natsSize(b, "PUB", "HPUB") }
func (n *natsTap) sizeFromServer(b []byte) int { return natsSize(b, "MSG", "HMSG") }

// natsSize gives the length of a line, together with the payload that follows the operations named.
func natsSize(b []byte, withPayload ...string) int {
	end := bytes.IndexByte(b, '\n') + 1
	if end == 0 {
		return 0
	}
	fields := strings.Fields(string(b[:end]))
	if len(fields) == 0 {
		return end
	}
	for _, op := range withPayload {
		if strings.EqualFold(fields[0], op) {
			size, _ := strconv.Atoi(fields[len(fields)-1])
			return end + size + len("\r\n")
		}
	}
	return end
}

func (n *natsTap) fromClient(m []byte) ([]byte, *Shot) {
	x, ok := publication(m)
	if !ok {
		return m, nil
	}
	target := n.proxy.shots.take(x)
	if target != nil && target.before {
		return nil, target.Shot
	}
	n.proxy.note(x)
	if target != nil {
		n.mu.Lock()
		n.target, n.reply = target, x.Reply
		n.mu.Unlock()
	}
	return m, nil
}

func (n *natsTap) fromServer(m []byte) ([]byte, *Shot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.target == nil {
		return m, nil
	}
	op, rest, _ := strings.Cut(firstLine(m), " ")
	subject, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if strings.HasSuffix(strings.ToUpper(op), "MSG") && subject == n.reply {
		return nil, n.target.Shot
	}
	return m, nil
}

// publication reads PUB subject [reply] size, or HPUB subject [reply] header-size size, and what follows the line.
func publication(m []byte) (x Publication, ok bool) {
	line := firstLine(m)
	payload := strings.TrimSuffix(string(m[min(len(line)+2, len(m)):]), "\r\n")
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return x, false
	}
	sizes := 1
	switch strings.ToUpper(fields[0]) {
	case "PUB":
	case "HPUB":
		sizes = 2
		headers, _ := strconv.Atoi(fields[len(fields)-2])
		payload = payload[min(headers, len(payload)):]
	default:
		return x, false
	}
	x = Publication{Subject: fields[1], Body: payload}
	if len(fields) == 3+sizes {
		x.Reply = fields[2]
	}
	return x, true
}

func firstLine(m []byte) string {
	line, _, _ := strings.Cut(string(m), "\r\n")
	return line
}
