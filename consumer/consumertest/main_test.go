package consumertest_test

import (
	"testing"

	"github.com/settlemq/settle/consumer/consumertest"
)

func TestMain(m *testing.M) { consumertest.Main(m) }
