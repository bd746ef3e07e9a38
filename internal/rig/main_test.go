package rig

import (
	"testing"

	"github.com/settlemq/settle/internal/devenv/devtest"
)

func TestMain(m *testing.M) {
	for name, run := range workers {
		Register(name, run)
	}
	RunChild()
	devtest.Main(m)
}
