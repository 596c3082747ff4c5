//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is a process in the process group of a command. When this process is killed, the
// guard ends the group: nobody else would if its slot were lost.
type guard struct {
	process *exec.Cmd
	tell    *os.File // ends with this process
}

// startGuard starts a guard that does nothing until it gets a group.
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
	// Until it ignores them, no signal for this group or for the command's must reach it.
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

// watch sets the group, and how long after this process's end it is killed.
func (g *guard) watch(group int, grace time.Duration) error {
	_, err := fmt.Fprintln(g.tell, group, int64(grace))
	return err
}

// leave lets the guard end the group after the time that is left.
func (g *guard) leave(group int, left time.Duration) {
	_ = g.watch(group, max(0, left))
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
	signal.Ignore() // those of the group are not meant for it
	if _, err := fmt.Fprintln(std.out, "ready"); err != nil {
		return err
	}
	var group int
	var grace time.Duration
	for joined := false; ; joined = true {
		if _, err := fmt.Fscanln(os.Stdin, &group, (*int64)(&grace)); err != nil {
			if !joined {
				return nil
			}
			break
		}
		if err := unix.Setpgid(0, group); err != nil {
			return err // all of the group has ended
		}
	}
	// As a member it keeps the group's number from being given to another.
	_ = syscall.Kill(0, syscall.SIGTERM)
	_ = syscall.Kill(0, syscall.SIGCONT) // what is stopped would not end
	time.Sleep(grace)
	return syscall.Kill(0, syscall.SIGKILL)
}
