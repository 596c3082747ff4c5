package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/test/netns"
)

// patience is how long a block may take.
const patience = 90 * time.Second

// shell is somebody at a machine's terminal.
type shell struct {
	name   string
	dir    string
	in     io.WriteCloser
	ends   *bufio.Reader // a line per block that has ended: its exit code
	blocks int
}

// open starts a shell, which ends with the test.
func open(t *testing.T, m netns.Machine, name, dir, path string) *shell {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// A host name of its own; and what it mounts nobody else sees.
	args := append(m.Command, "unshare", "--uts", "--mount", "bash", "--noprofile", "--norc")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{w}
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "HOSTNAME="+name)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = r.Close()
	})
	s := &shell{name: name, dir: dir, in: in, ends: bufio.NewReader(r)}
	s.say(t, "hostname "+name)
	return s
}

func (s *shell) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

// run runs a block to its end, or until it has said that it is up.
func (s *shell) run(t *testing.T, b Block, notes string) error {
	s.blocks++
	file := filepath.Join(notes, fmt.Sprintf("%s-%d", s.name, s.blocks))
	if err := os.WriteFile(file, []byte("set -e -o pipefail\n"+b.Text), 0o600); err != nil {
		return err
	}
	said := file + ".out"
	if b.Until != "" {
		// Not a subshell of the one that stays: its end must not be awaited.
		s.say(t, fmt.Sprintf("(source %s) >%s 2>&1 3>&- &", file, said))
		return s.await(said, b.Until)
	}
	// In a shell of its own, because the first command that fails ends it; folder
	// and exported variables last.
	s.say(t, fmt.Sprintf(`(trap 'echo "cd $PWD" >%[1]s.state; export -p >>%[1]s.state' EXIT; source %[1]s) >%[2]s 2>&1 3>&-; code=$?; source %[1]s.state; echo $code >&3`, file, said))
	code, err := s.ended()
	out, _ := os.ReadFile(said)
	if err != nil {
		return fmt.Errorf("%w; it has said\n%s", err, out)
	}
	if (code != "0") != b.Fails {
		return fmt.Errorf("exit code %s; it has said\n%s", code, out)
	}
	for _, want := range b.Shows {
		if !bytes.Contains(out, []byte(want)) {
			return fmt.Errorf("does not say %q, but\n%s", want, out)
		}
	}
	return nil
}

// ended waits for the end of a block and returns its exit code.
func (s *shell) ended() (string, error) {
	code := make(chan string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		line, _ := s.ends.ReadString('\n')
		code <- strings.TrimSpace(line)
	})
	select {
	case c := <-code:
		if c == "" {
			return "", fmt.Errorf("%s: the shell has ended", s.name)
		}
		return c, nil
	case <-time.After(patience):
		return "", fmt.Errorf("%s: has not ended after %v", s.name, patience)
	}
}

// await waits until a block that goes on running has said something.
func (s *shell) await(said, what string) error {
	deadline := time.Now().Add(patience)
	for {
		out, _ := os.ReadFile(said)
		if bytes.Contains(out, []byte(what)) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: has not said %q after %v, but\n%s", s.name, what, patience, out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
