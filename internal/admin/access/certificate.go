package access

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// certificate is a certificate and its key as the files last gave them together. Every handshake looks, for that costs two
// stats; so a renewed one is served without a restart. Files that do not fit, as while they are being replaced, change
// nothing until they change again.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	looked bool
	seen   [2]fs.FileInfo // the files when they were last read
	pair   tls.Certificate
}

func openCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	if _, err := c.look(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return c, nil
}

// get is a tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch changed, err := c.look(); {
	case err != nil:
		c.log.Warn("certificate not renewed; the one before it is served", "file", c.certFile, "error", err)
	case changed:
		c.log.Info("certificate renewed", "file", c.certFile, "expires", c.pair.Leaf.NotAfter)
	}
	pair := c.pair
	return &pair, nil
}

// look reads the files if they are others than they were. An error is told once for each change.
func (c *certificate) look() (changed bool, err error) {
	var now [2]fs.FileInfo
	for i, file := range []string{c.certFile, c.keyFile} {
		now[i], _ = os.Stat(file) // nil where there is none, of which the reading tells
	}
	if c.looked && same(c.seen[0], now[0]) && same(c.seen[1], now[1]) {
		return false, nil
	}
	c.seen, c.looked = now, true
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return false, err
	}
	c.pair = pair
	return true, nil
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameState(a, b)
}
