//go:build nodemo

package devenv

import (
	"strings"
	"testing"
)

func TestBuildWithoutServerSaysSo(t *testing.T) {
	_, err := StartNATS(NATSOptions{})
	if err == nil || !strings.Contains(err.Error(), "nodemo") {
		t.Errorf("got %v", err)
	}
	_, err = StartNATSProcess(t.Context(), NATSOptions{})
	if err == nil || !strings.Contains(err.Error(), "nodemo") {
		t.Errorf("got %v", err)
	}
}
