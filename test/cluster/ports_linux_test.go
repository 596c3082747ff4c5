package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/demo"
)

// TestOnePort: a gateway listens for clients, for operators and for other gateways, and nowhere else;
// over UDP not at all.
func TestOnePort(t *testing.T) {
	t.Parallel()
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: 2, K: 1, Upstream: url})
	for _, g := range c.Gateways {
		var want []string
		for _, addr := range []string{g.HTTP, g.Admin, g.Peer} {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, "tcp "+port)
		}
		slices.Sort(want)
		if got := listens(t, g.PID()); !slices.Equal(got, want) {
			t.Errorf("%s listens at %v, want %v", g.Name, got, want)
		}
	}
}

// listens returns the ports at which a process listens.
func listens(t *testing.T, pid int) (ports []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no open files: %v", err)
	}
	own := make(map[string]bool)
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil { // it may have been closed
			own[to] = true
		}
	}
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
		table, err := os.ReadFile("/proc/net/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(table), "\n")[1:] {
			f := strings.Fields(line) // number, local address, remote address, state, ...
			if len(f) < 10 || !own["socket:["+f[9]+"]"] || !strings.HasSuffix(f[2], ":0000") {
				continue
			}
			port, err := strconv.ParseUint(f[1][strings.LastIndex(f[1], ":")+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, fmt.Sprintf("%s %d", strings.TrimSuffix(kind, "6"), port))
		}
	}
	slices.Sort(ports)
	return ports
}
