//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// jobSignals are passed on, too, and never end a wait.
var jobSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}

// family is a command with the processes that it starts. Usually it is a process
// group of its own, so that signals reach all of it. In the foreground of a
// terminal it stays in this process's group: there the terminal itself sends
// Ctrl-C and Ctrl-Z to all of it.
type family struct{ foreground bool }

func newFamily() family {
	group, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return family{foreground: err == nil && group == unix.Getpgrp()}
}

func (f family) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: !f.foreground}
	dieWithParent(attr)
	return attr
}

// signal passes a signal on.
func (f family) signal(p *os.Process, s os.Signal) {
	number, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case !f.foreground:
		_ = syscall.Kill(-p.Pid, number) // it may just have ended
	case number != syscall.SIGINT && number != syscall.SIGQUIT && number != syscall.SIGWINCH:
		_ = p.Signal(number)
	}
}
