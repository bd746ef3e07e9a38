package image

import (
	"os"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) {
	for _, setting := range os.Environ() { // somebody's collector must not reach the processes of the test
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	devtest.Main(m)
}
