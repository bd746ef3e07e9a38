package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
)

// natsOptions reads the connection flags.
func natsOptions(cmd *cli.Command, name string) (address string, options []nats.Option, err error) {
	address, err = needed(cmd, "nats-url", "NATS_URL")
	if err != nil {
		return "", nil, err
	}
	options = []nats.Option{nats.Name(name)}
	if file := cmd.String("nats-creds"); file != "" {
		options = append(options, nats.UserCredentials(file))
	}
	if file := cmd.String("nats-ca"); file != "" {
		options = append(options, nats.RootCAs(file))
	}
	certificate, key := cmd.String("nats-cert"), cmd.String("nats-key")
	switch {
	case (certificate == "") != (key == ""):
		return "", nil, wrongUse("--nats-cert (NATS_CERT) and --nats-key (NATS_KEY) go together")
	case certificate != "":
		options = append(options, nats.ClientCert(certificate, key))
	}
	if prefix := cmd.String("nats-inbox"); prefix != "" {
		// A publisher's is the subject of its answers too, and those are sent below _INBOX alone.
		if !strings.HasPrefix(prefix, nats.InboxPrefix) {
			return "", nil, wrongUse("--nats-inbox (NATS_INBOX) must begin with %s, like _INBOX.worker", nats.InboxPrefix)
		}
		options = append(options, nats.CustomInboxPrefix(prefix))
	}
	return address, options, nil
}

// connectNATS connects once and gives up at the first failure: for commands that a person waits for.
// The caller closes the connection.
func connectNATS(cmd *cli.Command, name string) (*nats.Conn, error) {
	address, options, err := natsOptions(cmd, name)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(address, options...)
	if err != nil {
		return nil, natsError(address, err)
	}
	return conn, nil
}

// natsError says where the connection was to go, without the credentials that the URL may hold.
func natsError(address string, err error) error {
	var unreadable *url.Error
	if errors.As(err, &unreadable) {
		return wrongUse("--nats-url (NATS_URL) is not a list of URLs; it is not shown because it may hold a password")
	}
	return fmt.Errorf("connect to NATS at %s: %w", maskURL(address), err)
}

// keepNATS connects for a worker: it waits for a server that is down, now and at any later time, and says so.
// The caller closes the connection.
func keepNATS(ctx context.Context, cmd *cli.Command, name string, log *slog.Logger) (*nats.Conn, error) {
	address, options, err := natsOptions(cmd, name)
	if err != nil {
		return nil, err
	}
	log = log.With("url", maskURL(address))
	up, over := make(chan struct{}, 1), make(chan struct{})
	//nolint:sloglint // the callbacks are given no context, and outlive ctx
	options = append(options,
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// Nothing is kept to be sent after a reconnect: a late nak or in-progress would hit the next holder.
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(5*time.Second), // a network that takes nothing any more must not hold up the heartbeat
		nats.ConnectHandler(func(*nats.Conn) { up <- struct{}{} }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: we closed it
				log.Warn("NATS connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("NATS connection is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS", "error", err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(over) }),
	)
	conn, err := nats.Connect(address, options...)
	if err != nil {
		return nil, wrongUse("%w", natsError(address, err)) // a server that is down is no error here
	}
	if err := awaitNATS(ctx, conn, up, over, log); err != nil {
		conn.Close()
		<-over
		return nil, err
	}
	return conn, nil
}

func awaitNATS(ctx context.Context, conn *nats.Conn, up, over <-chan struct{}, log *slog.Logger) error {
	if conn.IsConnected() {
		return nil
	}
	remind := time.NewTicker(remindEvery)
	defer remind.Stop()
	for {
		log.WarnContext(ctx, "waiting for NATS")
		select {
		case <-up:
			log.InfoContext(ctx, "NATS is there")
			return nil
		case <-over:
			// The client gives up only where it was refused: wrong credentials.
			return wrongUse("connect to NATS: %w", cmp.Or(conn.LastError(), nats.ErrConnectionClosed))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-remind.C:
		}
	}
}

// openJetStream is the one place where a JetStream context is made.
func openJetStream(conn *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return js, nil
}
