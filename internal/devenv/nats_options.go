package devenv

import "fmt"

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
}

func natsURL(port int) string    { return fmt.Sprintf("nats://%s", localAddr(port)) }
func monitorURL(port int) string { return fmt.Sprintf("http://%s", localAddr(port)) }
