package consumer

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// dropRequest closes the connection of a request without an answer; with linger 0 it is reset.
func dropRequest(w http.ResponseWriter, linger int) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(linger)
	_ = conn.Close()
}

// D-26: the provider has its effect and closes a kept connection without a byte. net/http alone would send the
// request again, because of the key header.
func TestD26NoReplay(t *testing.T) {
	bodies := map[string]func() io.Reader{
		"POST with a body":   func() io.Reader { return strings.NewReader("x") },
		"DELETE without one": func() io.Reader { return nil },
		"POST without one":   func() io.Reader { return http.NoBody },
	}
	for name, body := range bodies {
		method, _, _ := strings.Cut(name, " ")
		// warmThenClosed makes the same call through rt and counts the effects, W.
		warmThenClosed := func(t *testing.T, ctx context.Context, rt http.RoundTripper) (effects int, err error) {
			var count atomic.Int32
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/warm" {
					return
				}
				if len(r.TransferEncoding) > 0 || method == "POST" && r.Header.Get("Content-Length") == "" {
					t.Errorf("request with transfer encoding %v, header %v", r.TransferEncoding, r.Header)
				}
				count.Add(1)
				dropRequest(w, 1)
			})
			if _, err := send(t.Context(), rt, "GET", s.URL+"/warm", nil); err != nil {
				t.Fatal(err)
			}
			_, err = send(ctx, rt, method, s.URL+"/effect", body())
			return int(count.Load()), err
		}
		t.Run(name, func(t *testing.T) {
			g := openGate()
			spans, ctx := recordSpans(t, t.Context())
			effects, err := warmThenClosed(t, withGate(ctx, g), newTransport(t, nil))
			if effects != 1 || err == nil {
				t.Errorf("%d effects, error %v; want 1 effect and an error", effects, err)
			}
			if g.judgement() != maybeApplied {
				t.Error("the engine would believe that nothing was applied")
			}
			if n := len(spans.Ended()); n != 1 {
				t.Errorf("%d spans for the one request", n)
			}
		})
		t.Run(name+", net/http alone", func(t *testing.T) {
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			if effects, _ := warmThenClosed(t, t.Context(), base); effects < 2 {
				t.Errorf("%d effects: the rig no longer shows the fault", effects)
			}
		})
	}
}

// D-26 over HTTP/2: the transport of net/http sends a bodiless request again after some stream errors.
func TestD26NoReplayHTTP2(t *testing.T) {
	url, requests := refusingHTTP2(t)
	g := openGate()
	tr := &Transport{Base: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate is not the point here
	}}
	t.Cleanup(tr.CloseIdleConnections)
	_, err := send(withGate(t.Context(), g), tr, "POST", url, nil)
	if !errors.Is(err, errNotRepeated) {
		t.Errorf("error %v, want %v", err, errNotRepeated)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
	if g.judgement() != maybeApplied {
		t.Error("the engine would believe that nothing was applied")
	}
}

// mute hides httptrace from the transport below: a Base that somebody wrapped carelessly.
type mute struct{ http.RoundTripper }

func (m mute) RoundTrip(r *http.Request) (*http.Response, error) {
	return m.RoundTripper.RoundTrip(r.WithContext(context.Background()))
}

// D-26 where the connections cannot be watched: a request with a body is still sent once.
func TestD26NoReplayThroughMuteBase(t *testing.T) {
	var effects atomic.Int32
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/effect" {
			effects.Add(1)
			dropRequest(w, 1)
		}
	})
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	tr := &Transport{Base: mute{base}}
	if _, err := send(t.Context(), tr, "GET", s.URL+"/warm", nil); err != nil {
		t.Fatal(err)
	}
	g := openGate()
	_, err := send(withGate(t.Context(), g), tr, "POST", s.URL+"/effect", strings.NewReader("x"))
	if err == nil || effects.Load() != 1 || g.judgement() != maybeApplied {
		t.Errorf("error %v, %d effects, judgement %v", err, effects.Load(), g.judgement())
	}
}

// refusingHTTP2 speaks just enough HTTP/2 to answer each request with RST_STREAM, code PROTOCOL_ERROR.
func refusingHTTP2(t *testing.T) (url string, requests *atomic.Int32) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			serving.Go(func() {
				defer stop()
				refuseStreams(conn, requests)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return "https://" + listener.Addr().String(), requests
}

func refuseStreams(conn net.Conn, requests *atomic.Int32) {
	defer conn.Close()
	const preface, header, headers, reset, settings = 24, 9, 1, 3, 4
	if _, err := io.CopyN(io.Discard, conn, preface); err != nil {
		return
	}
	_, _ = conn.Write([]byte{0, 0, 0, settings, 0, 0, 0, 0, 0})
	for {
		var h [header]byte
		if _, err := io.ReadFull(conn, h[:]); err != nil {
			return
		}
		length := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		if h[3] == headers {
			requests.Add(1)
			frame := append([]byte{0, 0, 4, reset, 0}, h[5:9]...)
			_, _ = conn.Write(binary.BigEndian.AppendUint32(frame, 1))
		}
	}
}
