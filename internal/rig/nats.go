package rig

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// NATSProxy is a Proxy before one NATS server that understands the client protocol well enough to cut around a
// publication. To the server an ack is a publication too, on a subject of its own for every delivery.
type NATSProxy struct {
	*Proxy
	server *url.URL
	shots  magazine[Publication]

	mu       sync.Mutex
	settling []Publication
}

// Publication is one message on its way from a client to the server.
type Publication struct {
	Subject string
	Reply   string // where an answer is expected; empty if nowhere
	Body    string // without headers
}

// IsSettling reports whether p settles a delivery of JetStream or prolongs it: ack, nak, term or in-progress.
func (p Publication) IsSettling() bool { return strings.HasPrefix(p.Subject, "$JS.ACK.") }

// IsAck reports whether p acks a delivery.
func (p Publication) IsAck() bool {
	return p.IsSettling() && (p.Body == "" || p.Body == "+ACK")
}

// IsNak reports whether p naks a delivery, with or without a delay.
func (p Publication) IsNak() bool { return p.IsSettling() && strings.HasPrefix(p.Body, "-NAK") }

// IsTerm reports whether p terminates a delivery.
func (p Publication) IsTerm() bool { return p.IsSettling() && strings.HasPrefix(p.Body, "+TERM") }

// IsInProgress reports whether p asks for more time.
func (p Publication) IsInProgress() bool { return p.IsSettling() && p.Body == "+WPI" }

// Of reports whether p settles a delivery of that stream and consumer.
func (p Publication) Of(stream, consumer string) bool {
	return p.IsSettling() && strings.Contains(p.Subject, "."+stream+"."+consumer+".")
}

// PublicationCut says which publication is meant.
type PublicationCut struct {
	// Match chooses the publication; nil means an ack (Publication.IsAck).
	Match func(Publication) bool
	// Skip lets that many such publications pass first.
	Skip int
	// Do, if set, runs right before the cut, while the client knows nothing yet: the place to kill or stop it.
	Do func()
}

// NewNATSProxy starts a proxy before the server at natsURL.
func NewNATSProxy(t testing.TB, natsURL string) *NATSProxy {
	t.Helper()
	u, err := url.Parse(natsURL)
	if err != nil || u.Host == "" {
		t.Fatal("nats proxy: the server's URL cannot be parsed") // the error would show its password
	}
	p := &NATSProxy{server: u}
	p.Proxy = startProxy(t, u.Host, func() tap { return &natsTap{proxy: p} })
	return p
}

// URL is the server URL that leads through the proxy.
func (p *NATSProxy) URL() string {
	u := *p.server
	u.Host = p.Addr()
	return u.String()
}

// CutBefore arms one cut right before a publication: the server never sees it.
func (p *NATSProxy) CutBefore(c PublicationCut) *Shot { return p.arm(c, true) }

// DropReply arms one cut between a publication and its reply: the server has handled it, the client cannot know.
// For a confirmed ack that is the confirmation, for a job the PubAck. A publication that expects no reply is never
// hit.
func (p *NATSProxy) DropReply(c PublicationCut) *Shot { return p.arm(c, false) }

func (p *NATSProxy) arm(c PublicationCut, before bool) *Shot {
	match := c.Match
	if match == nil {
		match = Publication.IsAck
	}
	hits := func(x Publication) bool { return match(x) && (before || x.Reply != "") }
	return p.shots.arm(&aimed[Publication]{hits: hits, skip: c.Skip, before: before}, c.Do)
}

// Settling is every ack, nak, term and in-progress that went through so far, oldest first. A silent worker has none.
func (p *NATSProxy) Settling() []Publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.settling)
}

func (p *NATSProxy) note(x Publication) {
	if !x.IsSettling() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settling = append(p.settling, x)
}
