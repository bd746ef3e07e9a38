//go:build !linux

package rig

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup keeps a Ctrl-C from the worker. Only Linux can end it with a test process that is killed.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func stopSelf() { signalSelf(syscall.SIGSTOP) }
func killSelf() { signalSelf(syscall.SIGKILL) }

func signalSelf(sig syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		panic("rig: signal to itself: " + err.Error())
	}
}

func stopped(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
