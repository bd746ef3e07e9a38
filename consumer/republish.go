package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/settlemq/settle/idemstore"
)

// Republication is what came of publishing a refused message once more.
type Republication struct {
	Refusal  idemstore.KeptRefusal
	Outcome  ActOutcome // OutcomeDone: the stream has it; OutcomeDropped, OutcomeRefused, OutcomeWouldDo
	Message  string     // in plain words
	Sequence uint64     // of the message that the stream has
}

// Republish publishes the body of a refused message once more to its subject, with the headers that it had and a message
// id of its own, and notes that on the refusal. However often it is called, within the stream's window the message is
// stored once; a repeat is said to be dropped. What the stream cannot bring to anybody is refused: a body of which only
// the beginning was kept, or that is larger than the broker takes, and a subject that no consumer filters.
//
// refusal is the id of settle.refusals. It blocks for some round trips. ErrInput means that actor or reason is missing,
// idemstore.ErrNotFound that there is no such refusal; any other error that nobody knows whether the stream has it: calling
// again is safe.
func Republish(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, refusal int64, by ActOptions) (Republication, error) {
	if !by.DryRun && (by.Actor == "" || by.Reason == "") {
		return Republication{}, fmt.Errorf("republish: %w: actor and reason are required", ErrInput)
	}
	store := idemstore.New(pool, 0)
	r, err := store.FindRefusal(ctx, refusal)
	if err != nil {
		return Republication{}, fmt.Errorf("republish: %w", err)
	}
	out := Republication{Refusal: r, Outcome: OutcomeRefused}
	if out.Message = whyNotAgain(r); out.Message != "" {
		return out, nil
	}
	heard, err := hasReader(ctx, js, r.Subject)
	switch {
	case err != nil:
		return out, fmt.Errorf("republish: %w", err)
	case !heard:
		out.Message = "no consumer is given messages of this subject, so nobody would get it; start a worker that serves the kind"
		return out, nil
	case int64(len(r.Body)) > js.Conn().MaxPayload():
		out.Message = tooLarge(r)
		return out, nil
	case by.DryRun:
		out.Outcome, out.Message = OutcomeWouldDo, "it would be published again"
		return out, nil
	}
	return publishAgain(ctx, js, store, out, idemstore.By{Actor: by.Actor, Reason: by.Reason})
}

// whyNotAgain says why a refusal cannot be published again; empty if it can.
func whyNotAgain(r idemstore.KeptRefusal) string {
	switch {
	case r.Republished != nil:
		return fmt.Sprintf("it was published again already, as message %d, by %s", r.Republished.Sequence, r.Republished.Actor)
	case r.Cut:
		return fmt.Sprintf("only the first %d of %d bytes of its body were kept; whoever published it has to do so again", len(r.Body), r.Size)
	case r.Subject == "":
		return "it is not known where it was published to"
	}
	return ""
}

func tooLarge(r idemstore.KeptRefusal) string {
	return fmt.Sprintf("its %d bytes are more than the broker takes; raise max_payload there first", r.Size)
}

// publishAgain publishes and then notes it. A crash in between leaves a message that the note lacks; the next call finds
// it, because the stream drops the repeat.
func publishAgain(ctx context.Context, js jetstream.JetStream, store *idemstore.Store, out Republication, by idemstore.By) (Republication, error) {
	answer, err := js.PublishMsg(ctx, messageAgain(out.Refusal))
	if errors.Is(err, nats.ErrMaxPayload) { // with its headers
		out.Message = tooLarge(out.Refusal)
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("republish: it is not known whether the stream has it; again is safe: %w", err)
	}
	out.Sequence, out.Outcome = answer.Sequence, OutcomeDone
	out.Message = fmt.Sprintf("published again, as message %d of %s", answer.Sequence, answer.Stream)
	if answer.Duplicate {
		out.Outcome = OutcomeDropped
		out.Message = fmt.Sprintf("dropped by the stream: it was published again a moment ago, as message %d", answer.Sequence)
	}
	if out.Refusal.HeadersCut {
		out.Message += "; its headers were too large to be kept, so it has none"
	}
	if err := store.MarkRepublished(ctx, out.Refusal.ID, answer.Sequence, by); err != nil {
		return out, fmt.Errorf("republish: %s, but that is not noted: %w", out.Message, err)
	}
	return out, nil
}

// messageAgain is the message of a refusal with an id of its own, which is the same in every try. Headers that ask
// something of the server were for the first publish.
func messageAgain(r idemstore.KeptRefusal) *nats.Msg {
	m := &nats.Msg{Subject: r.Subject, Data: r.Body, Header: nats.Header{}}
	for name, values := range r.Headers {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") {
			m.Header[name] = values
		}
	}
	m.Header.Set(headerMessageID, "again-"+digest(strconv.FormatInt(r.ID, 10), r.Origin.Stream,
		strconv.FormatUint(r.Origin.Sequence, 10), r.At.UTC().String()))
	return m
}

// hasReader reports whether the stream of a subject keeps what is published for whoever comes, or has a consumer that is
// given it.
func hasReader(ctx context.Context, js jetstream.JetStream, subject string) (bool, error) {
	name, err := js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("stream of %s: %w", subject, err)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return false, fmt.Errorf("stream %s: %w", name, err)
	}
	if stream.CachedInfo().Config.Retention == jetstream.LimitsPolicy {
		return true, nil
	}
	filters, err := filtersOf(ctx, stream)
	return routed(filters, subject), err
}
