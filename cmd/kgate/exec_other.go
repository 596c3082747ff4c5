//go:build !unix

package main

import (
	"os"
	"syscall"
)

var jobSignals []os.Signal

// family is a command; there are no process groups.
type family struct{}

func newFamily() family { return family{} }

func (family) attr() *syscall.SysProcAttr { return nil }

// signal can only kill.
func (family) signal(p *os.Process, s os.Signal) {
	if s == syscall.SIGTERM || s == syscall.SIGKILL {
		_ = p.Kill() // it may just have ended
	}
}
