package devenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSCluster is several nats-servers with JetStream, each in a child process, that share their streams. Its nodes can be
// killed and started again one by one. Its methods may be called from several goroutines.
type NATSCluster struct{ nodes []*NATSProcess }

// StartNATSCluster starts a cluster of so many nodes and returns when it can make streams, after some seconds and at most
// after 60. ctx bounds the start only; the servers live until Stop, or until this process ends. [RunChild] must have been
// called.
func StartNATSCluster(ctx context.Context, nodes int) (*NATSCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var c *NATSCluster
	err := retryExited(ctx, func(ctx context.Context) error {
		c = &NATSCluster{}
		return c.boot(ctx, nodes)
	})
	if err == nil {
		err = c.awaitLeader(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start nats cluster: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

func (c *NATSCluster) boot(ctx context.Context, nodes int) error {
	routes := make([]int, nodes)
	for i := range routes {
		port, err := freePort()
		if err != nil {
			return err
		}
		routes[i] = port
	}
	for i, port := range routes {
		n, err := StartNATSProcess(ctx, NATSOptions{Node: &NATSNode{Name: fmt.Sprint("node-", i+1), Port: port, Routes: routes}})
		if err != nil {
			return errors.Join(err, c.Stop())
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// awaitLeader waits until the nodes have chosen who decides about streams.
func (c *NATSCluster) awaitLeader(ctx context.Context) error {
	conn, err := nats.Connect(c.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	for {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		_, err = js.AccountInfo(asking)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// URL is where clients connect: the URLs of all nodes, with commas between them.
func (c *NATSCluster) URL() string {
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = n.URL()
	}
	return strings.Join(urls, ",")
}

// Node is the server of that name, as a stream or a consumer names its leader; nil if there is none.
func (c *NATSCluster) Node(name string) *NATSProcess {
	for _, n := range c.nodes {
		if n.options.Node.Name == name {
			return n
		}
	}
	return nil
}

// Stop shuts all nodes down and removes their files. Repeated calls do nothing.
func (c *NATSCluster) Stop() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Stop())
	}
	return errors.Join(errs...)
}
