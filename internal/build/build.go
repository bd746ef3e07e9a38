// Package build says which build of Settle is running.
package build

import "runtime/debug"

// version and revision are set for release builds:
//
//	go build -ldflags "-X github.com/settlemq/settle/internal/build.version=1.2.3"
var version, revision string

// Info describes the running build.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit, where known
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
}

// Read returns the linked-in version, else what the Go tool recorded, else "devel".
func Read() Info {
	info := Info{Version: version, Revision: revision}
	recorded, ok := debug.ReadBuildInfo()
	if ok {
		info.fill(recorded)
	}
	if info.Version == "" || info.Version == "(devel)" {
		info.Version = "devel"
	}
	return info
}

func (i *Info) fill(recorded *debug.BuildInfo) {
	i.Go = recorded.GoVersion
	if i.Version == "" {
		i.Version = recorded.Main.Version
	}
	for _, s := range recorded.Settings {
		switch s.Key {
		case "vcs.revision":
			if i.Revision == "" {
				i.Revision = s.Value
			}
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
}
