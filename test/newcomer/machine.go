package newcomer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/netns"
)

const (
	// patience is how long a machine may take to boot, and a block to end.
	patience = 3 * time.Minute
	// suite and packages make the Debian: what its installer leaves, as far as the
	// page needs it.
	suite    = "bookworm"
	packages = "systemd,systemd-sysv,ca-certificates,curl,iproute2,openssh-server"
)

// debian returns the folder of a clean Debian, which is made once and kept.
func debian(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(cache, "kgate-newcomer", suite)
	if _, err := os.Stat(base); err == nil {
		return base
	}
	making := base + ".making"
	if err := errors.Join(os.RemoveAll(making), os.MkdirAll(filepath.Dir(base), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Log("downloading a Debian; the next time it is there")
	out, err := exec.CommandContext(t.Context(), "debootstrap", "--variant=minbase", "--include="+packages, suite, making).CombinedOutput()
	if err != nil {
		t.Fatalf("debootstrap: %v\n%s", err, tail(out))
	}
	if err := os.Rename(making, base); err != nil {
		t.Fatal(err)
	}
	return base
}

func tail(out []byte) []byte { return out[max(0, len(out)-4000):] }

// machine is a Debian that runs.
type machine struct {
	name string
	init int // its first process, as the host numbers it
}

// boot starts a machine, which ends with the test.
func boot(t *testing.T, on netns.Machine, base, name string, files map[string][]byte) *machine {
	t.Helper()
	changes := t.TempDir()
	for path, content := range files {
		path = filepath.Join(changes, "upper", path)
		// ssh wants what it reads to be the user's alone.
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// Folders of everybody's that have come about so.
	for _, dir := range []string{"upper", "upper/etc"} {
		if err := os.Chmod(filepath.Join(changes, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"hosts", "hostname"} {
		if err := os.Chmod(filepath.Join(changes, "upper/etc", file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	group := newGroup(t, name)
	script, err := filepath.Abs("boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	args := append(on.Command,
		"unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--cgroup", "--propagation", "private",
		"bash", script, base, name, changes)
	// The shell moves itself, so that the machine's cgroup namespace begins there.
	cmd := exec.Command("bash", append([]string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group}, args...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its child goes with it, and with that all that runs there
		_ = cmd.Wait()
	})
	m := &machine{name: name}
	m.await(t, cmd.Process.Pid, &said)
	return m
}

// await waits until systemd has started what it starts.
func (m *machine) await(t *testing.T, unshare int, said *bytes.Buffer) {
	t.Helper()
	var state string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // a machine gives no sign
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", unshare))
		if err != nil {
			t.Fatalf("%s has ended:\n%s", m.name, said)
		}
		if m.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			continue
		}
		out, _ := m.run(t.Context(), "systemctl is-system-running")
		if state = strings.TrimSpace(string(out)); state == "running" || state == "degraded" {
			return
		}
	}
	t.Fatalf("%s does not boot: %s\n%s", m.name, state, said)
}

// run runs commands on the machine, each of which must succeed, and returns what
// they say.
func (m *machine) run(ctx context.Context, commands string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(m.init), "-m", "-u", "-i", "-n", "-p", "-C",
		"env", "-C", "/root", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
		"bash", "-e", "-o", "pipefail", "-c", commands)
	return cmd.CombinedOutput()
}

// newGroup makes a cgroup, which is removed when all that ran in it has ended.
func newGroup(t *testing.T, name string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var group string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			group = filepath.Join(f[1], fmt.Sprintf("kgate-newcomer-%d-%s", os.Getpid(), name))
		}
	}
	if group == "" {
		t.Fatal("needs cgroups, version 2, beside version 1 or alone")
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); removeGroup(group) != nil; time.Sleep(50 * time.Millisecond) { // the kernel takes its time
			if time.Now().After(deadline) {
				t.Errorf("%s is still in use", group)
				return
			}
		}
	})
	return group
}

// removeGroup removes a cgroup with those below it.
func removeGroup(group string) error {
	var all []string
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for i := len(all) - 1; i >= 0; i-- {
		err = errors.Join(err, os.Remove(all[i]))
	}
	return err
}
