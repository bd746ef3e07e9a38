package devenv

import "syscall"

// kernelGuards says that the kernel ends children whose parent is gone.
const kernelGuards = true

func setDeathSignal(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }
