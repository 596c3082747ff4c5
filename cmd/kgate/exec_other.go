//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

var jobSignals []os.Signal

// family is a command; there are no process groups, and nothing is stopped.
type family struct {
	process *os.Process
	stopped chan os.Signal
	resume  <-chan time.Time
}

func startFamily(cmd *exec.Cmd, _ chan<- os.Signal, _ time.Duration) (*family, error) {
	err := cmd.Start()
	return &family{process: cmd.Process}, err
}

// wait returns how the command has ended, as this process is to end.
func (*family) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &codedError{code: exit.ExitCode()}
	}
	return err
}

// signal can only kill.
func (f *family) signal(s os.Signal) {
	if s == syscall.SIGTERM || s == syscall.SIGKILL {
		_ = f.process.Kill() // it may just have ended
	}
}

func (*family) suspend(os.Signal) {}

func (*family) resumed() {}

func (*family) lost(time.Duration) {}

func (*family) end(error) {}

// Run fails: there are no process groups.
func (guardCommand) Run() error { return errors.ErrUnsupported }
