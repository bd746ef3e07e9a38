//go:build nodemo

package devenv

import (
	"errors"
	"fmt"
	"os"
)

var errNoServer = errors.New("start nats: this program was built without nats-server (build tag nodemo)")

// NATS is a nats-server with JetStream in this process. This build has none.
type NATS struct{}

// StartNATS returns an error: this build has no nats-server.
func StartNATS(NATSOptions) (*NATS, error) { return nil, errNoServer }

// URL is where clients connect.
func (*NATS) URL() string { return "" }

// MonitorURL is the base of the HTTP monitor.
func (*NATS) MonitorURL() string { return "" }

// Stop does nothing.
func (*NATS) Stop() error { return nil }

func serveNATS(NATSOptions) int {
	fmt.Fprint(os.NewFile(reportFD, "report"), errNoServer)
	return 1
}
