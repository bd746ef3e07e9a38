package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// mostOfReason bounds what is read of an answer, in bytes.
const mostOfReason = 4 << 10

func healthCommand() *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "ask a worker, a bridge or the support screen of this host whether it is ready; exit 1 with the reason if it is not",
		Description: `For health checks of containers, which have no shell and nothing else to ask with. Asks /readyz at --http-addr, the address at
which the service was told to listen; one for all interfaces is asked on the loopback interface.`,
		Flags: []cli.Flag{
			stringFlag("http-addr", "`HOST:PORT` of the service", "127.0.0.1:8089"),
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for the answer", Value: 2 * time.Second, Validator: positive[time.Duration]},
		},
		Action: action(0, 0, askHealth),
	}
}

func askHealth(ctx context.Context, cmd *cli.Command) error {
	addr, err := reachable(cmd.String("http-addr"))
	if err != nil {
		return wrongUse("--http-addr (%s): %w", variableOf("http-addr").Key(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return wrongUse("--http-addr (%s): %w", variableOf("http-addr").Key(), err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, mostOfReason))
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(said)))
	}
	fmt.Fprintln(cmd.Root().Writer, "ready")
	return nil
}

// reachable is where to ask a service that listens at an address.
func reachable(addr string) (string, error) {
	if addr == httpOff {
		return "", errors.New("it is off, so there is nobody to ask")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
