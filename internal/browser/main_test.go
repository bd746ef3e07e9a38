package browser

import (
	"testing"
	"time"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

// soon bounds every wait: far more than anything here takes, even on a loaded machine.
const soon = 90 * time.Second

func TestMain(m *testing.M) { devtest.Main(m) }
