package consumer

import (
	"flag"
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

func TestMain(m *testing.M) {
	rig.Register("crm", crmWorker)
	rig.Register("local", localWorker)
	rig.RunChild()
	_ = flag.Set("test.parallel", "6") // most tests wait for clocks of seconds; -parallel still overrides it
	devtest.Main(m)
}
