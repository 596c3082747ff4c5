package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/admin"
)

// TestWatchShowsEveryGateway: on a terminal of 80 by 24 no gateway is cut off, however
// long the lines are.
func TestWatchShowsEveryGateway(t *testing.T) {
	for _, gateways := range []int{2, 5, 20, 40} {
		status, lines := shownStatus()
		status.Cluster.Members = nil
		for i := range gateways {
			status.Cluster.Members = append(status.Cluster.Members, admin.Member{
				Name: fmt.Sprintf("gateway-%02d", i), Status: admin.StatusAlive, LinkUp: true, Answers: true, Ready: i%7 != 3, Votes: i < 5,
			})
		}
		var out bytes.Buffer
		s := newScreen(&out)
		s.terminal, s.drawn, s.size = true, true, func() (int, int) { return 80, 24 }
		v := statusView{screen: s}
		v.print(status, lines)
		text := v.out.String()
		if n := strings.Count(text, "\n"); n > 24 {
			t.Errorf("%d gateways take %d lines", gateways, n)
		}
		for i := range gateways {
			if !strings.Contains(text, fmt.Sprintf("gateway-%02d", i)) {
				t.Errorf("of %d gateways number %d is not shown:\n%s", gateways, i, text)
			}
		}
		for _, line := range strings.Split(text, "\n") {
			if visibleLen(line) > 81 {
				t.Errorf("%d columns: %q", visibleLen(line), line)
			}
		}
	}
}
