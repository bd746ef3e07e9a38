package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// reply is what the provider answers.
type reply struct {
	ReportID string `json:"report_id"`
	Replayed bool   `json:"replayed"`
	Error    string `json:"error"`
	status   int
}

// body asks for a report about the task at hand.
func (p *play) body(reportType string) []byte {
	return fmt.Appendf(nil, `{"task_id": %d, "report_type": %q}`, p.task, reportType)
}

// post asks for a report; an empty key is not sent.
func (p *play) post(ctx context.Context, key string, body []byte) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.providerURL+"/reports", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return p.call(req)
}

// lookUp asks for the report that was made under a key.
func (p *play) lookUp(ctx context.Context, key string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.providerURL+"/reports?idempotency_key="+url.QueryEscape(key), http.NoBody)
	if err != nil {
		return reply{}, err
	}
	return p.call(req)
}

// call makes one request on a connection of its own: a kept one could be closed under a request, and repeated.
func (p *play) call(req *http.Request) (r reply, err error) {
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return r, err
	}
	err = json.Unmarshal(text, &r)
	r.status = resp.StatusCode
	return r, err
}
