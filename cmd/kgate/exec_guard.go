//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// guard is the first process of the process group that a command is then started in. When this
// process is killed, the guard ends the group: otherwise the group would go on after the loss of its slot.
type guard struct {
	process *exec.Cmd
	tell    *os.File // ends with this process
}

// startGuard starts a guard that does nothing until it is to watch.
func startGuard() (g *guard, err error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer told.Close()
	g = &guard{process: exec.Command(path, guardName), tell: tell}
	defer func() {
		if err != nil {
			g.end()
		}
	}()
	g.process.Stdin = told
	// No process starts in its group, and no signal is sent there, until it ignores signals.
	g.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ready, err := g.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.process.Start(); err != nil {
		return nil, err
	}
	defer ready.Close()
	_, err = ready.Read(make([]byte, 1))
	return g, err
}

// group returns the number of the process group.
func (g *guard) group() int { return g.process.Process.Pid }

// watch sets the time after this process's end at which the group is killed, and the command, which may
// have left the group; nil: there is no command yet.
func (g *guard) watch(command *os.Process, grace time.Duration) error {
	pid := 0
	if command != nil {
		pid = command.Pid
	}
	_, err := fmt.Fprintln(g.tell, pid, int64(grace))
	return err
}

// leave lets the guard end the group after the time that is left.
func (g *guard) leave(left time.Duration) {
	_ = g.watch(nil, max(0, left))
	_ = g.tell.Close()
}

// end ends the guard, and nothing else.
func (g *guard) end() {
	if g.process.Process != nil {
		_ = g.process.Process.Kill()
		_ = g.process.Wait()
	}
	_ = g.tell.Close()
}

// Run is the guard's process.
func (guardCommand) Run(std streams) error {
	signal.Ignore() // signals to the group are not meant for the guard
	if _, err := fmt.Fprintln(std.out, "ready"); err != nil {
		return err
	}
	var grace time.Duration
	var pid int
	var command *os.Process
	// As long as it runs, the group's number is given to no other.
	own := syscall.Getpgrp()
	group := own
	for watches := false; ; watches = true {
		if _, err := fmt.Fscanln(os.Stdin, &pid, (*int64)(&grace)); err != nil {
			if !watches {
				return nil
			}
			break
		}
		if pid != 0 && command == nil {
			command, _ = os.FindProcess(pid)
		}
		group = groupOf(command, group)
	}
	group = groupOf(command, group) // unchanged if the command has ended and others of its group have not
	signalAll(own, group, syscall.SIGTERM)
	signalAll(own, group, syscall.SIGCONT) // a stopped process would not end
	time.Sleep(grace)
	signalAll(own, group, syscall.SIGKILL)
	return nil
}

// groupOf returns the process group that a command leads, as shells with job control do, or the group
// that it was started in.
func groupOf(command *os.Process, started int) int {
	if command == nil || command.Signal(syscall.Signal(0)) != nil { // it has ended
		return started
	}
	if group, err := syscall.Getpgid(command.Pid); err != nil || group != command.Pid {
		return started
	}
	return command.Pid
}

// signalAll sends a signal to the group that a command was started in, and to its own.
func signalAll(started, group int, s syscall.Signal) {
	if group != started {
		_ = syscall.Kill(-group, s)
	}
	_ = syscall.Kill(-started, s) // they may just have ended
}
