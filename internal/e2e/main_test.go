package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 60 * time.Second

func TestMain(m *testing.M) {
	// Somebody's own collector, sampler or service name must not reach the processes of the test.
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	devtest.Main(m)
}
