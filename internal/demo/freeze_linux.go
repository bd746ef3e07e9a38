package demo

import (
	"os"
	"runtime"
	"syscall"
)

// freeze stops this process, as a debugger or a moved virtual machine would; whoever started it wakes it again. The
// signal goes to the thread that sends it: another one might take a signal to the process, and this goroutine would
// run on for a moment.
func freeze() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
}
