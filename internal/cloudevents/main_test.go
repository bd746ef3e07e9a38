package cloudevents

import (
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
