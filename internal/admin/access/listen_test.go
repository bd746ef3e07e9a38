package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBeyondThisHostOnlyProtected(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		if server, err := s.access.Listen(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v %v", addr, server, err)
		}
	}
	for _, c := range []Config{
		{},
		{Users: filepath.Join(t.TempDir(), "missing")},
		{Users: s.users, CertFile: "x"},
		{Proxy: Proxy{UserHeader: "X-User"}},
		{Users: s.users, Proxy: Proxy{GroupsHeader: "X-Groups"}},
		{Proxy: Proxy{UserHeader: "Cookie", From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		{Proxy: Proxy{UserHeader: "X_User", From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		{Proxy: Proxy{UserHeader: "X-User", From: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}},
	} {
		c.cost = testCost
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// Behind a list of proxies the listener may face the network; who comes to it directly is refused.
func TestPlainHTTPOnlyFromProxies(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *Config) { c.Proxy.From = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	for from, want := range map[string]int{"203.0.113.9:1": http.StatusForbidden, "10.0.0.1:1": http.StatusOK, "127.0.0.1:1": http.StatusOK, "[::ffff:10.0.0.1]:1": http.StatusOK, "": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/task/1", http.NoBody)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+botToken)
		r.Header.Set("X-Forwarded-Proto", "https")
		w := httptest.NewRecorder()
		s.access.Wrap(s).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %q: %d, want %d", from, w.Code, want)
		}
		if hsts := w.Header().Get("Strict-Transport-Security") != ""; hsts != strings.Contains(from, "10.0.0.1") {
			t.Errorf("from %q: TLS is demanded: %v", from, hsts)
		}
	}
}

func TestTheClientIsWhomTheLastProxySaw(t *testing.T) {
	t.Parallel()
	p := Proxy{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for forwarded, want := range map[string]string{
		"": "10.0.0.1", "203.0.113.9": "203.0.113.9", "1.1.1.1, 203.0.113.9": "203.0.113.9", "1.1.1.1,203.0.113.9, 10.2.2.2": "203.0.113.9",
		"10.9.9.9": "10.9.9.9", "1.1.1.1, junk": "10.0.0.1", "junk, 10.2.2.2": "10.2.2.2", "::ffff:203.0.113.9": "203.0.113.9",
	} {
		if got := p.clientOf([]string{forwarded}, netip.MustParseAddr("10.0.0.1")); got.String() != want {
			t.Errorf("%q: %s, want %s", forwarded, got, want)
		}
	}
}

func TestOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := newCertificate(t)
	s := open(t, func(c *Config) { c.CertFile, c.KeyFile = cert, key; c.Logger = slog.New(slog.DiscardHandler) })
	send := func(versions *tls.Config, r *http.Request) (answer, error) {
		transport := &http.Transport{TLSClientConfig: versions, DisableKeepAlives: true, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(r)
		if err != nil {
			return answer{}, err
		}
		defer response.Body.Close()
		return answer{response.StatusCode, response.Header, response.Proto}, nil
	}
	post := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+pathSignIn, strings.NewReader("name=ann&password=correct+horse+battery"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", formType)
		return r
	}
	response, err := send(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, post())
	if err != nil {
		t.Fatal(err)
	}
	set := response.header.Get("Set-Cookie")
	if response.status != http.StatusSeeOther || !strings.HasPrefix(set, "__Host-"+cookieName+"=") || !strings.Contains(set, "Secure") ||
		response.header.Get("Strict-Transport-Security") != overTLS || response.body != "HTTP/2.0" {
		t.Errorf("%+v", response)
	}
	if s.access.tls.MinVersion != tls.VersionTLS12 { // this client could not show it: it lacks the old ciphers
		t.Errorf("TLS begins at %x", s.access.tls.MinVersion)
	}
	if _, err := send(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, post()); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// A certificate is renewed by replacing its files, one after the other, under a running screen.
func TestARenewedCertificateIsServed(t *testing.T) {
	t.Parallel()
	cert, key, _ := newCertificate(t)
	var log bytes.Buffer
	c, err := openCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serves := func(name, file string, lines int) {
		t.Helper()
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.get(nil)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if block, _ := pem.Decode(text); !bytes.Equal(block.Bytes, got.Certificate[0]) {
			t.Errorf("%s: not the certificate in %s is served", name, filepath.Base(file))
		}
		if n := strings.Count(log.String(), "\n"); n != lines {
			t.Errorf("%s: %d log lines, want %d:\n%s", name, n, lines, &log)
		}
	}
	serves("unchanged", cert, 0)

	newCert, newKey, _ := newCertificate(t)
	old := filepath.Join(filepath.Dir(cert), "old.pem")
	for _, move := range [][2]string{{cert, old}, {newCert, cert}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
		if move[0] == cert {
			serves("without its file", old, 1)
		}
	}
	serves("with the old key", old, 2)
	if err := os.Rename(newKey, key); err != nil {
		t.Fatal(err)
	}
	serves("renewed", cert, 3)
	if _, err := openCertificate(cert, newCert, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened without a key")
	}
}

func newCertificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile, pool = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool.AppendCertsFromPEM(text)
	for file, text := range map[string][]byte{certFile: text, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, pool
}
