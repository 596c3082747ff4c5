package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/admin"
)

// TestWatchShowsEveryGateway: on a terminal of 80 by 24 no gateway is cut off, however
// long the lines and the names are.
func TestWatchShowsEveryGateway(t *testing.T) {
	for _, name := range []string{"gateway-%02d", "kgate-downloads-eu-west-1a-gateway-%02d", "gw-%02d.downloads.frankfurt.example.com", "eu-west-1a-downloads-gw-%02d.frankfurt.example.com"} {
		for _, gateways := range []int{2, 5, 20, 40} {
			text := watched(t, name, gateways, 2)
			for i := range gateways {
				if !strings.Contains(text, fmt.Sprintf("-%02d", i)) && !strings.Contains(text, fmt.Sprintf("…%02d", i)) {
					t.Errorf("of %d gateways number %d is not shown:\n%s", gateways, i, text)
				}
			}
		}
	}
	// Where there is no room for all, those in trouble come first.
	text := watched(t, "gateway-%03d", 140, 30)
	for i := range 140 {
		if i%7 == 3 && !strings.Contains(text, fmt.Sprintf("gateway-%03d not ready", i)) {
			t.Errorf("gateway %d is not ready, and not shown:\n%s", i, text)
		}
	}
	for _, want := range []string{"and 117 more\n", "pool p-0:", "and 22 more pools\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

// watched is what a terminal of 80 by 24 shows of so many gateways and pools.
func watched(t *testing.T, name string, gateways, pools int) string {
	t.Helper()
	status, lines := shownStatus()
	status.Cluster.Members = nil
	for i := range gateways {
		status.Cluster.Members = append(status.Cluster.Members, admin.Member{
			Name: fmt.Sprintf(name, i), Status: admin.StatusAlive, LinkUp: true, Answers: true, Ready: i%7 != 3, Votes: i < 5,
			Copies: []string{fmt.Sprintf(name, (i+1)%gateways)}, Addr: fmt.Sprintf("10.0.1.%d:7080", i),
		})
	}
	if pools > len(status.Pools) {
		status.Pools = nil
		for i := range pools {
			status.Pools = append(status.Pools, admin.Pool{Name: fmt.Sprintf("p-%d", i), K: 3})
		}
	}
	var out bytes.Buffer
	s := newScreen(&out)
	s.terminal, s.drawn, s.size = true, true, func() (int, int) { return 80, 24 }
	v := statusView{screen: s}
	v.print(status, lines)
	text := v.out.String()
	if n := strings.Count(text, "\n"); n > 24 {
		t.Errorf("%d gateways and %d pools take %d lines:\n%s", gateways, pools, n, text)
	}
	for _, line := range strings.Split(text, "\n") {
		if visibleLen(line) > 80 {
			t.Errorf("%d columns: %q", visibleLen(line), line)
		}
	}
	return text
}
