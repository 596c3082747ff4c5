//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// jobSignals are passed on, too, but never end a wait.
var jobSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}

// family is a command with the processes that it starts. It is a process group of its
// own, so that signals reach all of it, and all of it ends when the slot is lost. The
// terminal is this process's, as its shell sees it, and is lent to the family, which gets Ctrl-C, Ctrl-Z
// and the input.
type family struct {
	terminal *os.File // the controlling terminal; nil without one
	signals  chan<- os.Signal
	command  *os.Process
	guard    *guard    // leads the process group
	over     time.Time // when the lost slot may have another holder; zero: it is held
	lent     bool      // the terminal is lent to the family
	// stopped receives the signals that stop the command.
	stopped chan os.Signal
	// resume asks for resumed, where this process cannot be stopped.
	resume <-chan time.Time
}

// startFamily starts cmd. signals receives this process's signals. grace is how long cmd may go on after
// this process is killed.
func startFamily(cmd *exec.Cmd, signals chan<- os.Signal, grace time.Duration) (*family, error) {
	guard, err := startGuard()
	if err != nil {
		return nil, fmt.Errorf("the process that ends the command when this one is killed: %w", err)
	}
	f := &family{signals: signals, stopped: make(chan os.Signal), guard: guard}
	f.terminal, _ = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	// The guard watches before there is a command, so that none goes on whenever this process
	// is killed.
	if err := guard.watch(nil, grace); err != nil {
		f.end(err)
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: guard.group()}
	dieWithParent(cmd.SysProcAttr)
	// In a pipeline others may want to read from the terminal. There the command gets
	// it when it reads, see suspend.
	if f.inForeground() && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty, f.lent = true, int(f.terminal.Fd()), true
	}
	if err := cmd.Start(); err != nil {
		f.end(err)
		return nil, err
	}
	f.command = cmd.Process
	_ = guard.watch(f.command, grace) // if somebody has killed the guard, the command runs all the same
	signal.Notify(signals, syscall.SIGTSTP)
	return f, nil
}

// wait returns how the command has ended, as this process is to end.
func (f *family) wait(cmd *exec.Cmd) error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err == nil && status.Stopped():
			f.stopped <- status.StopSignal()
			continue
		}
		_ = cmd.Wait() // for its output; the process is gone
		switch {
		case err != nil:
			return err
		case status.Signaled():
			return &codedError{code: exitSignal + int(status.Signal())}
		case status.ExitStatus() != 0:
			return &codedError{code: status.ExitStatus()}
		}
		return nil
	}
}

// signal passes a signal on.
func (f *family) signal(s os.Signal) {
	number, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case number == syscall.SIGCONT:
		f.resumed()
	default:
		signalAll(f.guard.group(), f.group(), number)
	}
}

// lost notes that the slot is lost: grace is left. The guard must not add to it.
func (f *family) lost(grace time.Duration) {
	f.over = time.Now().Add(grace)
	_ = f.guard.watch(nil, 0)
}

// suspend follows a command that the signal s has stopped.
func (f *family) suspend(s os.Signal) {
	switch {
	case s == syscall.SIGSTOP: // sent by somebody else
		return
	case s != syscall.SIGTSTP && f.inForeground():
		f.resumed() // it wants the terminal
		return
	}
	f.reclaim()
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() {
		const soon = 100 * time.Millisecond
		f.resume = time.After(soon) // no shell would ever continue this process
		return
	}
	// The shell sees a stopped job: this process and the others that the shell has started with
	// it, as if the terminal had sent the signal to all. Package signal does not give SIGTSTP its
	// effect back.
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(unix.Getpid(), syscall.SIGSTOP)
}

// resumed continues the command, with the terminal if this process has it.
func (f *family) resumed() {
	f.resume = nil
	signal.Notify(f.signals, syscall.SIGTSTP)
	if f.inForeground() {
		f.lent = f.handTo(f.group())
	}
	signalAll(f.guard.group(), f.group(), syscall.SIGCONT)
}

// end takes the terminal back from a command that has ended as err says.
func (f *family) end(err error) {
	lent := f.lent
	if f.over.IsZero() {
		f.guard.end()
	} else { // processes that the command has started may go on
		f.guard.leave(time.Until(f.over))
	}
	f.reclaim()
	if f.terminal != nil {
		_ = f.terminal.Close()
	}
	signal.Reset(syscall.SIGTSTP)
	// A script that has started this process would have had them from the terminal.
	var coded *codedError
	if !lent || !errors.As(err, &coded) {
		return
	}
	if s := syscall.Signal(coded.code - exitSignal); s == syscall.SIGINT || s == syscall.SIGQUIT {
		_ = syscall.Kill(0, s) // not for this process: it gives the slot back first
	}
}

// foreground returns the process group that has the terminal; 0 if there is no terminal.
func (f *family) foreground() int {
	if f.terminal == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(int(f.terminal.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// group returns the command's process group.
func (f *family) group() int { return groupOf(f.command, f.guard.group()) }

func (f *family) inForeground() bool { return f.foreground() == unix.Getpgrp() }

// reclaim takes the terminal back if the command still has it, or no process group has.
func (f *family) reclaim() {
	if !f.lent {
		return
	}
	f.lent = false
	if group := f.foreground(); group != 0 && (group == f.group() || errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)) {
		f.handTo(unix.Getpgrp())
	}
}

// handTo gives the terminal to a process group.
func (f *family) handTo(group int) bool {
	signal.Ignore(syscall.SIGTTOU) // which stops a process that does not have the terminal
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(int(f.terminal.Fd()), unix.TIOCSPGRP, group) == nil
}
