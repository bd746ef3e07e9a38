package devenv

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// parentVar makes the test binary a program that starts one server of each kind, says where, and waits to be killed.
const parentVar = "DEVENV_TEST_PARENT"

func TestMain(m *testing.M) {
	RunChild()
	if os.Getenv(parentVar) != "" {
		beParent(os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

func beParent(out io.Writer) {
	pg, err := StartPostgres(context.Background(), PostgresOptions{})
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	broker, err := StartNATSProcess(context.Background(), NATSOptions{})
	if err != nil {
		fmt.Fprintln(out, err)
		return
	}
	fmt.Fprintln(out, pg.folder.path)
	fmt.Fprintln(out, broker.folder.path)
	untilParentGone(os.Stdin)
}
