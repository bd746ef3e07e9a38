package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/settlemq/settle/idemstore"
)

// PublishOutcome says what is known of a publish. A timeout is not a failure: the message may be stored.
type PublishOutcome int

// What is known of a publish.
const (
	PublishUnknown   PublishOutcome = iota // no answer came: publish again, it is safe
	PublishStored                          // the stream has it
	PublishDuplicate                       // the stream had the same key with the same content already, within its window
)

// String is "stored", "duplicate" or "unknown".
func (p PublishOutcome) String() string {
	switch p {
	case PublishStored:
		return "stored"
	case PublishDuplicate:
		return "duplicate"
	case PublishUnknown:
	}
	return "unknown"
}

// Publication is the answer to a publish.
type Publication struct {
	Outcome  PublishOutcome
	Stream   string
	Sequence uint64 // of the stored message; 0 if not known
	Key      string // business key
}

// InvalidJobError is returned for a job that no worker would accept, before anything is published; of Call also for one that a
// worker did not accept, such as a conflict. It has nothing to do with what a provider refuses (Refused).
type InvalidJobError struct {
	Reason idemstore.Reason // in a stable word
	Detail string           // in plain words, without anything of the job but what the kind's Key function says of it
}

// Error is Reason and Detail.
func (e *InvalidJobError) Error() string { return fmt.Sprintf("refused (%s): %s", e.Reason, e.Detail) }

// Publish sends one job to the stream. Key and message id are made here, the latter from kind, key and content:
// an honest repeat within the stream's window is dropped by the server, while other content under the same key
// gets through and is found as a conflict.
//
// It blocks until the stream has confirmed or ctx ends; without a deadline in ctx, up to five seconds. The error
// is an *InvalidJobError for a job that no worker would accept. Any other error comes with PublishUnknown: the message may
// be stored, and publishing it again is safe.
func Publish[J any](ctx context.Context, js jetstream.JetStream, kind JobOf[J], job J) (Publication, error) {
	body, err := json.Marshal(job)
	if err != nil {
		return Publication{}, unencodable(err)
	}
	return PublishRaw(ctx, js, kind, body, nil)
}

// unencodable is a job that has no JSON: trying again is of no use.
func unencodable(err error) error {
	return &InvalidJobError{Reason: idemstore.Malformed, Detail: "the job cannot be encoded: " + errorText(err)}
}

// ReadJob reads a body as workers read the messages of a kind: by the strict rules, and with a usable key. It is for jobs
// inside a job, such as the records of a batch. The error is an *InvalidJobError, which quotes nothing of the body.
func ReadJob[J any](kind JobOf[J], body []byte) (J, error) {
	var none J
	d, err := kind.define()
	if err != nil {
		return none, err
	}
	j, err := d.read(body, maxBody)
	if err != nil {
		return none, refused(err)
	}
	job, ok := j.value.(J)
	if !ok {
		return none, fmt.Errorf("read job: kind %q has jobs of type %T", d.name, j.value)
	}
	return job, nil
}

// PublishRaw is Publish for a body as it will travel, byte for byte, with headers of its own: a job, or a CloudEvent with the
// job as its data. A Nats-Msg-Id among the headers replaces the derived one, and Traceparent is set from ctx unless given.
func PublishRaw(ctx context.Context, js jetstream.JetStream, kind Definition, body []byte, header map[string][]string) (Publication, error) {
	d, err := kind.define()
	if err != nil {
		return Publication{}, err
	}
	j, err := d.readMessage(header, body, maxBody)
	if err != nil {
		return Publication{}, refused(err)
	}
	ctx, span := startPublishing(ctx, otel.GetTracerProvider(), js.Conn(), attribute.String(attrDestination, subject(d.name)),
		attribute.Int(attrBodySize, len(body)), attribute.String(attrKind, d.name), attribute.String(attrKey, j.key))
	out, err := publish(ctx, js, messageOf(ctx, d, j, body, header))
	span.SetAttributes(attribute.String(attrOutcome, out.Outcome.String()))
	endSpan(span, err)
	out.Key = j.key
	return out, err
}

func refused(err error) error {
	var r *refusalError
	if errors.As(err, &r) {
		return &InvalidJobError{Reason: r.reason, Detail: r.detail}
	}
	return err
}

func messageOf(ctx context.Context, d *definition, j job, body []byte, header map[string][]string) *nats.Msg {
	m := &nats.Msg{Subject: subject(d.name), Data: body, Header: nats.Header{}}
	for k, v := range header {
		if strings.EqualFold(k, headerMessageID) {
			k = headerMessageID // the server knows only this spelling
		}
		m.Header[k] = v
	}
	if headers(m.Header).Get(headerMessageID) == "" {
		m.Header.Set(headerMessageID, messageID(d.name, j.key, j.hash))
	}
	if headers(m.Header).Get(headerTraceparent) == "" {
		propagator.Inject(ctx, headers(m.Header))
	}
	return m
}

func publish(ctx context.Context, js jetstream.JetStream, m *nats.Msg) (Publication, error) {
	answer, err := js.PublishMsg(ctx, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return Publication{}, &InvalidJobError{Reason: idemstore.TooLarge, Detail: fmt.Sprintf(
			"message of %d bytes, max_payload of the NATS server is %d: split the job, each part under a key of its own, or raise it",
			m.Size(), js.Conn().MaxPayload())}
	}
	if err != nil {
		return Publication{Outcome: PublishUnknown}, fmt.Errorf("publish: %w", err)
	}
	out := Publication{Outcome: PublishStored, Stream: answer.Stream, Sequence: answer.Sequence}
	if answer.Duplicate {
		out.Outcome = PublishDuplicate
	}
	return out, nil
}
