package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kgate/kgate/internal/admission"
)

// terminal is a terminal with a session of its own.
type terminal struct {
	*os.File // what a person types
	output   // and sees
	shell    *exec.Cmd
}

// openTerminal starts a shell with job control.
func openTerminal(t *testing.T, g *fakeGateway, ttl string) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	person := os.NewFile(uintptr(fd), "terminal")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	programs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer programs.Close()
	s := &terminal{File: person, shell: exec.CommandContext(t.Context(), "sh", "-i")}
	line, err := json.Marshal([]string{"exec", "--admin", g.url, "--ttl", ttl, "--", "sh", "-c"})
	if err != nil {
		t.Fatal(err)
	}
	s.shell.Env = append(os.Environ(), "PS1=ready:", "KGATE_TEST_ARGS="+strings.TrimSuffix(string(line), "]")+`,"exec sh \"$KGATE_TEST_SCRIPT\""]`, "KGATE_TEST_SELF="+os.Args[0])
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = programs, programs, programs
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			_, _ = s.output.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = person.Close() // its processes get SIGHUP
		<-seen
		_ = s.shell.Process.Kill()
		_ = s.shell.Wait()
	})
	return s
}

func (s *terminal) types(t *testing.T, text string) {
	t.Helper()
	if _, err := s.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (s *terminal) sees(t *testing.T, text string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("on the terminal, after %q:\n%s", text, s.String())
		}
	})
	await(t, text, func() bool { return strings.Contains(s.String(), text) })
}

// startScript runs kgate exec on the terminal with a script, and returns once it writes
// "up" and the ticket.
func (s *terminal) startScript(t *testing.T, script, suffix string) (ticket string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("echo up $KGATE_TICKET.\n"+script), 0o600); err != nil {
		t.Fatal(err)
	}
	s.types(t, "KGATE_TEST_SCRIPT="+file+" $KGATE_TEST_SELF -test.run='^TestExecProcess$'"+suffix+"\n")
	s.sees(t, "up ")
	s.sees(t, ".\r\n")
	_, after, _ := strings.Cut(s.String(), "up ")
	ticket, _, _ = strings.Cut(after, ".")
	return ticket
}

// runs reports whether a process is there that the script has left its number of in a file.
func runs(t *testing.T, file string) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/status")
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}

// TestExecOnATerminal: all processes of a command end when its slot is lost, also in the foreground of a
// terminal, and the shell goes on. The command reads the terminal and gets its keys.
func TestExecOnATerminal(t *testing.T) {
	child := "sh -c 'trap \"\" HUP; echo $$ >%s; while :; do sleep .01; done' & "
	for name, suffix := range map[string]string{"alone": "", "in a pipeline": " | cat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startFake(t, map[string]int{"p": 1})
			s := openTerminal(t, g, "9s") // a loss is noticed after a third of it
			pid := filepath.Join(t.TempDir(), "pid")
			ticket := s.startScript(t, fmt.Sprintf(child, pid)+"read line; echo read $line; wait", suffix)
			s.types(t, "typed\n")
			s.sees(t, "read typed")
			await(t, "the child", func() bool { data, _ := os.ReadFile(pid); return len(data) > 0 })
			g.Drop(ticket, admission.EndLost)
			await(t, "the child's end", func() bool { return !runs(t, pid) })
			s.sees(t, "the slot is lost")
			s.types(t, "echo back again | tr a b\n") // the shell has the terminal
			s.sees(t, "bbck bgbin")
		})
	}
	t.Run("Ctrl-C", func(t *testing.T) {
		t.Parallel()
		g := startFake(t, map[string]int{"p": 1})
		s := openTerminal(t, g, "1m")
		pid := filepath.Join(t.TempDir(), "pid")
		s.startScript(t, fmt.Sprintf("sh -c 'echo $$ >%s; while :; do sleep .01; done'; echo went on", pid), "; echo code $?")
		await(t, "the child", func() bool { data, _ := os.ReadFile(pid); return len(data) > 0 })
		s.types(t, "\x03")
		s.sees(t, "code 130")
		if runs(t, pid) {
			t.Error("the command's child goes on")
		}
		await(t, "the slot's return", func() bool { granted, _ := g.Count("p"); return granted == 0 })
	})
	t.Run("Ctrl-Z", func(t *testing.T) {
		t.Parallel()
		g := startFake(t, map[string]int{"p": 1})
		s := openTerminal(t, g, "1m")
		s.startScript(t, "read a; echo first $a; read b; echo second $b", "")
		s.types(t, "x\n")
		s.sees(t, "first x")
		s.types(t, "\x1a")
		s.sees(t, "Stopped")
		s.types(t, "echo at the shell | tr a b\n")
		s.sees(t, "bt the shell")
		s.types(t, "fg\n")
		s.types(t, "y\n")
		s.sees(t, "second y")
		s.types(t, "echo at the end | tr a b\n")
		s.sees(t, "bt the end")
	})
	t.Run("in a script", func(t *testing.T) {
		t.Parallel()
		g := startFake(t, map[string]int{"p": 1})
		s := openTerminal(t, g, "1m")
		s.types(t, "(")
		s.startScript(t, "set -- $(cat /proc/$$/stat); [ $5 = $8 ] && echo has the terminal", "; read x; echo after $x)")
		s.sees(t, "has the terminal") // from the beginning
		s.types(t, "typed\n")
		s.sees(t, "after typed") // which no shell has given it back
	})
	t.Run("in the background", func(t *testing.T) {
		t.Parallel()
		g := startFake(t, map[string]int{"p": 1})
		s := openTerminal(t, g, "1m")
		s.startScript(t, "read a; echo first $a", " &")
		s.types(t, "sleep .3; jobs\n")
		s.sees(t, "Stopped")
		s.types(t, "fg\n")
		s.types(t, "x\n")
		s.sees(t, "first x")
	})
}
