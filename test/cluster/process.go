package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to end.
const patience = 30 * time.Second

// Process is one process that a test has started. Its methods are safe for
// concurrent use.
type Process struct {
	// Log is what the process writes to its standard error.
	Log *Log

	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended
	began time.Time

	mu   sync.Mutex
	acts []act     // signals, in their order
	gone time.Time // zero: it runs
}

// StartProcess starts a process, which ends with the test at the latest: by
// SIGTERM, or by SIGKILL if it does not obey.
func StartProcess(tb testing.TB, binary string, args ...string) *Process {
	tb.Helper()
	p := &Process{Log: newLog(), cmd: exec.Command(binary, args...), done: make(chan struct{}), began: time.Now()}
	p.cmd.Stderr = p.Log
	p.cmd.Env = plainEnv()
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // what it says is in ProcessState
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gone = time.Now()
	}()
	tb.Cleanup(func() {
		if err := p.end(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// plainEnv is the environment without what would configure a gateway.
func plainEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KGATE_") {
			env = append(env, v)
		}
	}
	return env
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. A process that has ended takes none.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	p.acts = append(p.acts, act{time.Now(), s})
	p.mu.Unlock()
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// AwaitRecord returns the first line of the log that has this message.
func (p *Process) AwaitRecord(message string) (Record, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		_, more := p.Log.Lines()
		if r := p.Log.Records(message); len(r) > 0 {
			return r[0], nil
		}
		select {
		case <-more:
		case <-p.done:
			return nil, fmt.Errorf("process %d has ended:\n%s", p.PID(), p.Log.Tail(20))
		case <-timer.C:
			return nil, fmt.Errorf("process %d does not log %q:\n%s", p.PID(), message, p.Log.Tail(20))
		}
	}
}

// Wait returns the exit code of a process that ends within the time.
func (p *Process) Wait(within time.Duration) (code int, err error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("process %d still runs after %v", p.PID(), within)
	}
}

// Stop ends the process by SIGTERM and returns its exit code.
func (p *Process) Stop() (code int, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return p.Wait(patience)
}

// end makes sure that the process ends.
func (p *Process) end() error {
	_, err := p.Stop()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w; it is killed", err)
	if e := p.Signal(syscall.SIGKILL); e != nil {
		return errors.Join(err, e)
	}
	<-p.done
	return err
}

// RSS returns the bytes of memory that the process has in use, where /proc
// tells.
func (p *Process) RSS() (int64, error) { return p.memory("VmRSS:") }

// ProcessorTime returns how much the process has used, where /proc tells: in steps
// of 10 ms.
func (p *Process) ProcessorTime() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // what is before may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("the process's stat has only %d fields", len(fields))
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	const tick = time.Second / 100 // USER_HZ
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}

// PeakRSS returns the most that it has ever had in use.
func (p *Process) PeakRSS() (int64, error) { return p.memory("VmHWM:") }

func (p *Process) memory(field string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			fields := strings.Fields(string(rest))
			if len(fields) == 0 {
				break
			}
			kib, err := strconv.ParseInt(fields[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in the process's status", field)
}
