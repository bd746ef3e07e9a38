package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/consumer"
)

// CheckSubject refuses what is no subject to publish to, and the subjects of jobs: an alert is none.
func CheckSubject(subject string) error {
	if subject == "" || strings.ContainsAny(subject, " \t\r\n*>") {
		return errors.New("a subject has no blanks and no wildcards")
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" {
			return errors.New("a subject has no empty token")
		}
	}
	if strings.HasPrefix(subject, "jobs.") || strings.HasPrefix(subject, "$") {
		return errors.New("subjects under jobs. and $ are taken")
	}
	return nil
}

// flushTimeout bounds the wait for the server's word that it has an alert.
const flushTimeout = 5 * time.Second

// Subject publishes alerts as JSON, as plain messages: whoever wants to keep them has a stream on the subject. It
// returns when the server has them. conn stays the caller's.
func Subject(conn *nats.Conn, subject string) Func {
	return func(ctx context.Context, a consumer.Alert) error {
		ctx, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		body, err := json.Marshal(a)
		if err == nil {
			err = conn.Publish(subject, body)
		}
		if err == nil {
			err = conn.FlushWithContext(ctx)
		}
		if err != nil {
			return fmt.Errorf("publish alert to %s: %w", subject, err)
		}
		return nil
	}
}
