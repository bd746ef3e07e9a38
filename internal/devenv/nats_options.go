package devenv

import (
	"fmt"
	"strings"
)

// NATSOptions says what kind of server to start. The zero value is right for tests.
type NATSOptions struct {
	// Dir is where JetStream keeps its files; it is made if missing, and stays after Stop. Empty: a temporary
	// folder that Stop removes.
	Dir string `json:"dir"`

	// Port and MonitorPort are the ports on 127.0.0.1 for clients and for the HTTP monitor. Zero: free ones.
	Port        int `json:"port"`
	MonitorPort int `json:"monitor_port"`

	// SyncAlways writes each message through to the disk before it is acknowledged (sync_interval: always), as a
	// production server should. It makes a publish about ten times slower.
	SyncAlways bool `json:"sync_always"`

	// Node makes the server a part of a cluster; StartNATSCluster sets it. Nil: a server of its own.
	Node *NATSNode `json:"node,omitempty"`
}

// NATSNode is a server's place in a cluster.
type NATSNode struct {
	Name   string `json:"name"`   // unique in the cluster
	Port   int    `json:"port"`   // on 127.0.0.1, for the other nodes
	Routes []int  `json:"routes"` // the ports of all nodes
}

func (n NATSNode) routes() string {
	urls := make([]string, len(n.Routes))
	for i, port := range n.Routes {
		urls[i] = natsURL(port)
	}
	return strings.Join(urls, ",")
}

func natsURL(port int) string    { return fmt.Sprintf("nats://%s", localAddr(port)) }
func monitorURL(port int) string { return fmt.Sprintf("http://%s", localAddr(port)) }
