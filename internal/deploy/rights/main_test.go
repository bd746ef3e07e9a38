package rights

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 3 * time.Minute

func TestMain(m *testing.M) {
	for _, setting := range os.Environ() { // somebody's collector must not reach the processes of the test
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	devtest.Main(m)
}
