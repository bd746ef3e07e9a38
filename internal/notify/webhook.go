package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/settlemq/settle/consumer"
)

// Bounds of one telling. Their sum is within the time that the engine gives.
const (
	tries       = 3
	tryTimeout  = 3 * time.Second
	firstPause  = 200 * time.Millisecond
	maxAnswer   = 64 << 10 // of the body, which is read only so that the connection can be used again
	contentType = "application/json"
)

// Webhook posts alerts as JSON to a URL. It tries up to three times, for what a moment may mend, and follows no redirect.
// Such URLs are secrets: neither its errors nor its String show more of it than the host.
type Webhook struct {
	address *url.URL
	client  *http.Client
}

// NewWebhook makes a webhook; nothing is called yet. Its error does not quote the address.
func NewWebhook(address string) (*Webhook, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("not a URL") // the parser's text may quote a secret
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("it names no host")
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	return &Webhook{address: u, client: &http.Client{
		Transport: transport, Timeout: tryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// String shows where the webhook is, without its secrets.
func (w *Webhook) String() string { return w.address.Scheme + "://" + w.address.Host }

// Close closes the connections that no call uses.
func (w *Webhook) Close() { w.client.CloseIdleConnections() }

// Tell posts one alert. It returns nil once the webhook has answered with 2xx.
func (w *Webhook) Tell(ctx context.Context, a consumer.Alert) error {
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode alert: %w", err)
	}
	pauses := retry.WithMaxRetries(tries-1, retry.WithFullJitter(retry.NewExponential(firstPause)))
	if err := retry.Do(ctx, pauses, func(ctx context.Context) error { return w.post(ctx, body) }); err != nil {
		return fmt.Errorf("post alert to %s: %w", w, err)
	}
	return nil
}

// post tries once.
func (w *Webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("request cannot be made")
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := w.client.Do(req)
	if err != nil {
		if quoting, ok := errors.AsType[*url.Error](err); ok {
			err = quoting.Err
		}
		return retry.RetryableError(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return retry.RetryableError(fmt.Errorf("answer %d", code))
	default:
		return fmt.Errorf("answer %d", code)
	}
}
