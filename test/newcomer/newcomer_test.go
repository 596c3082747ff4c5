package newcomer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/kgate/kgate/test/docs"
	"github.com/kgate/kgate/test/netns"
)

// Variable has the test run.
const Variable = "KGATE_NEWCOMER"

const page = "../../docs/install.md"

// names and addresses of the machines. A block that does not say where is for the
// first.
var (
	names = []string{"gw-1", "gw-2", "gw-3", "upstream"}
	addrs = []string{"10.0.0.1/16", "10.0.0.2/16", "10.0.0.3/16", "10.0.1.1/16"}
	hosts = "127.0.0.1 localhost\n10.0.0.1 gw-1\n10.0.0.2 gw-2\n10.0.0.3 gw-3\n10.0.1.1 upstream\n"
)

func TestNewcomer(t *testing.T) {
	if os.Getenv(Variable) == "" {
		t.Skip("takes minutes and downloads a Debian: make newcomer runs it")
	}
	for tool, pkg := range map[string]string{"debootstrap": "debootstrap", "ssh-keygen": "openssh-client"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("needs %s (Debian: apt-get install %s)", tool, pkg)
		}
	}
	blocks, err := docs.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	wires := netns.Machines(t, addrs...)
	deb, base := debPackage(t), debian(t)
	files := sshFiles(t)
	files["etc/hosts"] = []byte(hosts)
	files["root/kgate_test.deb"] = deb
	machines := make(map[string]*machine)
	for i, name := range names {
		files["etc/hostname"] = []byte(name + "\n")
		machines[name] = boot(t, wires[i], base, name, files)
		t.Cleanup(func() { tellJournal(t, machines[name]) })
	}
	for _, b := range blocks {
		if b.NotRun != "" {
			continue
		}
		if err := follow(t, machines, b); err != nil {
			t.Fatalf("%s:%d: %v", page, b.Line, err)
		}
	}
}

// tellJournal shows what a machine's gateway has said, if the test has failed.
func tellJournal(t *testing.T, m *machine) {
	if t.Failed() {
		out, _ := m.run(context.Background(), "systemctl status --no-pager -l kgate; journalctl --no-pager -q -n 40")
		t.Logf("%s:\n%s", m.name, out)
	}
}

// follow does what a block says, where it says.
func follow(t *testing.T, machines map[string]*machine, b docs.Block) error {
	if len(b.At) == 0 {
		b.At = names[:1]
	}
	errs := make([]error, len(b.At))
	var wg sync.WaitGroup
	for i, name := range b.At {
		m := machines[name]
		if m == nil {
			return fmt.Errorf("there is no machine %q", name)
		}
		wg.Go(func() {
			commands := b.Text
			if b.File != "" {
				commands = fmt.Sprintf("cat >%s <<'END-OF-FILE'\n%sEND-OF-FILE\n", b.File, b.Text)
			}
			out, err := m.run(t.Context(), commands)
			t.Logf("%s, line %d:\n%s%s", name, b.Line, b.Text, out)
			errs[i] = judge(b, out, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// judge tells whether a block has done what its page says.
func judge(b docs.Block, out []byte, err error) error {
	switch {
	case err != nil && !b.Fails:
		return fmt.Errorf("%w; it has said\n%s", err, out)
	case err == nil && b.Fails:
		return fmt.Errorf("does not fail, and has said\n%s", out)
	}
	for _, want := range b.Shows {
		if !bytes.Contains(out, []byte(want)) {
			return fmt.Errorf("does not say %q, but\n%s", want, out)
		}
	}
	return nil
}

// debPackage makes the package as make dist does.
func debPackage(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../../tools/dist.sh", filepath.Join(dir, "dist"))
	cmd.Env = append(os.Environ(), "PLATFORMS=linux/"+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dist.sh: %v\n%s", err, tail(out))
	}
	found, err := filepath.Glob(filepath.Join(dir, "dist", "*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d packages: %v", len(found), err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sshFiles let root of each machine go to each other one.
func sshFiles(t *testing.T) map[string][]byte {
	t.Helper()
	key := filepath.Join(t.TempDir(), "id_ed25519")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	private, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"root/.ssh/id_ed25519": private, "root/.ssh/authorized_keys": public,
		"root/.ssh/config": []byte("StrictHostKeyChecking no\nLogLevel ERROR\n"),
	}
}
