package consumer

import (
	"flag"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // most tests wait for clocks of seconds; -parallel still overrides it
	devtest.Main(m)
}
