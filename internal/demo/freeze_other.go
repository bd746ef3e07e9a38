//go:build !linux

package demo

import (
	"os"
	"syscall"
	"time"
)

// freeze stops this process, as a debugger or a moved virtual machine would; whoever started it wakes it again. Any
// thread may take the signal, so this one stands still until one has.
func freeze() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(100 * time.Millisecond)
}
