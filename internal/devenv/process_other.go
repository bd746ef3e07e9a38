//go:build !linux

package devenv

import "syscall"

// kernelGuards says that the kernel ends children whose parent is gone. Here a watcher has to.
const kernelGuards = false

func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
