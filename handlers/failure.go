package handlers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/settlemq/settle/consumer"
)

// callError is a call without an answer. Its text is safe to store and to log, which that of net/http is not: it
// quotes what a broken answer looked like.
type callError struct {
	text string
	err  error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.err }

// failure classifies the error of a call that got no answer. What surely ended before a connection claims to be
// not sent; the engine has seen for itself whether that is so.
func failure(err error) error {
	safe := &callError{text: describe(err), err: err}
	switch {
	case isTLSSetup(err):
		return consumer.Misconfigured(safe)
	case neverConnected(err):
		return consumer.NotSent(safe)
	}
	return safe
}

// isTLSSetup finds certificates that do not fit, and a server that speaks no TLS: waiting does not mend these.
func isTLSSetup(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return certificate || noTLS
}

func neverConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// describe is the text of the innermost error that is known to quote nothing.
func describe(err error) string {
	for _, known := range []error{
		consumer.ErrLost, consumer.ErrDraining, consumer.ErrDeadline,
		context.DeadlineExceeded, context.Canceled, io.ErrUnexpectedEOF, io.EOF,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Error()
	}
	return fmt.Sprintf("no usable answer (%T)", err)
}
