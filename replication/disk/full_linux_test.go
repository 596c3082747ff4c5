package disk

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kgate/kgate/replication"
)

const inside = "KGATE_TEST_NAMESPACE"

// inNamespace runs the test again in a mount namespace of its own; it returns
// true there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch exit := (*exec.ExitError)(nil); {
	case errors.As(err, &exit):
		t.Fatalf("%s", out)
	case err != nil:
		t.Skipf("needs a mount namespace: %v", err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	return false
}

// mount makes a small file system.
func mount(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("needs the right to mount a file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	return dir
}

// A full disk is reported, and nothing written is lost. When there is room again the next write has
// all changes.
func TestFullDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := mount(t, 0, "size=512k")
	s := opened(t, dir)
	defer s.Close()
	table := replication.NewTable(1)
	var full error
	saved := 0
	for n := 0; full == nil && n < 100_000; n += 100 {
		saved = table.Len()
		for i := range 100 {
			put(t, table, n+i)
		}
		full = s.Write(s.Pending("p", table, replication.NewReplicaSet()))
	}
	if !errors.Is(full, syscall.ENOSPC) || !strings.Contains(full.Error(), "the disk is full") {
		t.Fatalf("%v", full)
	}
	if have := len(loaded(t, s, "p").Of(1).Records()); have != saved {
		t.Errorf("%d records on the full disk, %d had been written", have, saved)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(s.Pending("p", table, replication.NewReplicaSet())); err != nil {
		t.Fatal(err)
	}
	if have := len(loaded(t, s, "p").Of(1).Records()); have != table.Len() {
		t.Errorf("%d records, want %d", have, table.Len())
	}
}

func TestReadOnlyDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := mount(t, syscall.MS_RDONLY, "")
	if _, err := Open(dir, "c", ""); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "must be able to write") {
		t.Errorf("%v", err)
	}
}
