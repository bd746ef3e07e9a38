package build

import (
	"runtime/debug"
	"testing"
)

func TestReadNamesAVersionAndTheGoRelease(t *testing.T) {
	info := Read()
	if info.Version == "" || info.Go == "" {
		t.Fatalf("Read() = %+v, want a version and a Go release", info)
	}
}

func TestLinkedInValuesWin(t *testing.T) {
	info := Info{Version: "1.2.3", Revision: "abc"}
	info.fill(&debug.BuildInfo{
		GoVersion: "go1.26",
		Main:      debug.Module{Version: "v0.0.0-recorded"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "recorded"},
			{Key: "vcs.modified", Value: "true"},
		},
	})
	want := Info{Version: "1.2.3", Revision: "abc", Modified: true, Go: "go1.26"}
	if info != want {
		t.Fatalf("fill = %+v, want %+v", info, want)
	}
}
