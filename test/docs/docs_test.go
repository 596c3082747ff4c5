package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/netns"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// machines by name, with their addresses.
var machines = []struct{ name, addr string }{
	{"gw-1", "10.0.0.1/16"}, {"gw-2", "10.0.0.2/16"}, {"gw-3", "10.0.0.3/16"}, {"upstream", "10.0.1.1/16"}, {"lb", "10.0.0.9/16"},
}

// pages are those whose commands are run.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(all) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return append([]string{"../../README.md"}, all...)
}

func TestCommandBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real gateways")
	}
	cluster.Need(t, "curl", "curl")
	cluster.Need(t, "haproxy", "haproxy")
	binary := cluster.Binary(t)
	for _, page := range pages(t) {
		blocks, err := Parse(page)
		if err != nil {
			t.Error(err)
		}
		if filepath.Base(page) == "install.md" {
			continue // test/newcomer follows it, on whole machines
		}
		if !someRun(blocks) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			follow(t, page, blocks, filepath.Dir(binary))
		})
	}
}

func someRun(blocks []Block) bool {
	for _, b := range blocks {
		if b.NotRun == "" {
			return true
		}
	}
	return false
}

// follow does what a page says.
func follow(t *testing.T, page string, blocks []Block, path string) {
	var addrs []string
	for _, m := range machines {
		addrs = append(addrs, m.addr)
	}
	notes := t.TempDir()
	shells := make(map[string]*shell)
	for i, m := range netns.Machines(t, addrs...) {
		name, dir := machines[i].name, t.TempDir()
		if filepath.Base(page) == "README.md" {
			dir = filepath.Dir(page)
		}
		shells[name] = open(t, m, name, dir, path)
	}
	for _, b := range blocks {
		if b.NotRun != "" {
			continue
		}
		if err := b.follow(t, shells, notes); err != nil {
			t.Fatalf("%s:%d: %v", page, b.Line, err)
		}
	}
}

// follow does what a block says, where it says.
func (b Block) follow(t *testing.T, shells map[string]*shell, notes string) error {
	if len(b.At) == 0 {
		b.At = []string{machines[0].name}
	}
	errs := make([]error, len(b.At))
	var wg sync.WaitGroup
	for i, name := range b.At {
		s, ok := shells[name]
		switch {
		case !ok:
			return fmt.Errorf("there is no machine %q", name)
		case b.File != "":
			errs[i] = os.WriteFile(filepath.Join(s.dir, b.File), []byte(b.Text), 0o600)
		default:
			wg.Go(func() { errs[i] = s.run(t, b, notes) })
		}
	}
	wg.Wait()
	if b.Copied != "" {
		errs = append(errs, copyToAll(b.Copied, shells[b.At[0]], shells))
	}
	return errors.Join(errs...)
}

// copyToAll gives all machines the file that one has.
func copyToAll(file string, from *shell, shells map[string]*shell) error {
	data, err := os.ReadFile(filepath.Join(from.dir, file))
	if err != nil {
		return err
	}
	for _, s := range shells {
		if s.dir != from.dir {
			err = errors.Join(err, os.WriteFile(filepath.Join(s.dir, file), data, 0o600))
		}
	}
	return err
}
