package devenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/sethvargo/go-retry"
)

// errExited says that a server ended before it was ready. A taken port is the one cause that a repeat can cure.
var errExited = errors.New("the server exited before it was ready")

// freePort finds a TCP port on 127.0.0.1 that nobody listens on. It stays below the ranges from which systems take
// the ports of outgoing connections, so that a server which is down for a moment finds its port free again.
func freePort() (int, error) {
	const lowest, highest, tries = 15000, 30000, 100
	var err error
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", localAddr(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

func localAddr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// retryExited repeats start, up to five times, while the server exits before it is ready: between the choice of a
// port and its use someone else may take it.
func retryExited(ctx context.Context, start func(context.Context) error) error {
	backoff := retry.WithMaxRetries(4, retry.NewConstant(200*time.Millisecond))
	return retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := start(ctx)
		if errors.Is(err, errExited) && ctx.Err() == nil {
			return retry.RetryableError(err)
		}
		return err
	})
}
