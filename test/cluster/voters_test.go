package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestLostForLong loses one of three gateways for so long that nobody counts it any more, and then
// another, in each order of roles. When the first is back, it and the third serve again.
// Gateways with a data_dir are killed. The first of those without one is stopped, for a process
// that ends takes its vote with it.
func TestLostForLong(t *testing.T) {
	if !Soak() {
		t.Skip("takes two minutes; package membership has the same in virtual time")
	}
	for _, durable := range []bool{true, false} {
		for _, first := range []string{"leader", "follower"} {
			for _, second := range []string{"leader", "follower"} {
				t.Run(fmt.Sprintf("data_dir %t, %s, then %s", durable, first, second), func(t *testing.T) {
					t.Parallel()
					loseTwo(t, durable, first, second)
				})
			}
		}
	}
}

func loseTwo(t *testing.T, durable bool, first, second string) {
	const (
		k     = 6
		lease = 3 * time.Second
	)
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 200*time.Millisecond) }))
	c := Start(t, Options{K: k, Upstream: url, Lease: lease, Durable: durable})
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 9, Patience: 2 * time.Second}) // each gateway has slots
	one := c.inRole(t, first, c.Gateways...)
	away, back := syscall.SIGKILL, func(g *Gateway) *Gateway { return c.Restart(t, slices.Index(c.Gateways, g)) }
	if !durable {
		away, back = syscall.SIGSTOP, func(g *Gateway) *Gateway { _ = g.Signal(syscall.SIGCONT); return g }
	}
	lose(t, one, away)
	left := slices.DeleteFunc(slices.Clone(c.Gateways), func(g *Gateway) bool { return g == one })
	Span(t, 75*time.Second)
	for _, g := range left {
		s, err := g.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Cluster.Voters, s.Cluster.LossesTolerated); got != "3 0" {
			t.Errorf("%s says: voters, losses tolerated: %s", g.Name, got)
		}
	}
	two := c.inRole(t, second, left...)
	lose(t, two, syscall.SIGKILL)
	three := left[1-slices.Index(left, two)]
	Span(t, 2*lease)

	began := time.Now()
	both := []*Gateway{back(one), three}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, g := range both {
		if err := g.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	timing.Within(t, "two of three are ready", time.Since(began), lease+time.Second)
	for _, g := range both {
		if err := Await(ctx, func() error {
			if Served(load.Since(began), time.Now())[g.Name] == 0 {
				return fmt.Errorf("%s serves nobody", g.Name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	timing.Within(t, "they serve", time.Since(began), lease+time.Second+Whole(lease))
	if _, most, _ := judge.Counts(); most > k {
		t.Errorf("most in flight %d, k is %d", most, k)
	}
}

// lose ends or stops a gateway.
func lose(t *testing.T, g *Gateway, by syscall.Signal) {
	t.Helper()
	if err := g.Signal(by); err != nil {
		t.Fatal(err)
	}
	if by == syscall.SIGSTOP {
		t.Cleanup(func() { _ = g.Signal(syscall.SIGCONT) }) // to end with the test
		return
	}
	if _, err := g.Wait(patience); err != nil {
		t.Fatal(err)
	}
}

// inRole returns the one of these gateways that leads, or one that does not.
func (c *Cluster) inRole(t *testing.T, role string, of ...*Gateway) (one *Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error {
		s, err := of[0].Status(ctx)
		if err != nil {
			return err
		}
		for _, g := range of {
			if (g.Name == s.Cluster.Leader) == (role == "leader") {
				one = g
			}
		}
		if one == nil || s.Cluster.Leader == "" {
			return fmt.Errorf("%q leads", s.Cluster.Leader)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return one
}

// TestLeaveByForce takes gateways out that are lost: one of three, from another; and one of
// two that are lost, which needs what nobody can agree on.
func TestLeaveByForce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	_, _, url := NewJudge(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c := Start(t, Options{K: 3, Upstream: url, Lease: 3 * time.Second, Durable: true})
	leads := c.inRole(t, "leader", c.Gateways...) // for now
	others := slices.DeleteFunc(slices.Clone(c.Gateways), func(g *Gateway) bool { return g == leads })
	lose(t, others[0], syscall.SIGKILL)
	// The others are started again: gossip has forgotten the lost one, and its vote still counts.
	for _, g := range []**Gateway{&leads, &others[1]} {
		lose(t, *g, syscall.SIGKILL)
		*g = c.Restart(t, slices.Index(c.Gateways, *g))
	}
	for _, g := range []*Gateway{leads, others[1]} {
		if err := g.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	if err := Await(ctx, func() error { // until its lease is over it is suspended
		out, _, _ := run(t, "status", "--admin", "http://"+leads.Admin)
		for _, words := range []string{"3 voters, 0 more may be lost", others[0].Name + " is lost"} {
			if !strings.Contains(out, words) {
				return fmt.Errorf("%q is not in the status:\n%s", words, out)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	expect(t, 0, nil, "leave", "--force", others[0].Name, "--admin", "http://"+others[1].Admin)
	expect(t, 0, nil, "leave", "--force", others[0].Name, "--admin", "http://"+leads.Admin) // again
	expect(t, 1, []string{"there is no gateway"}, "leave", "--force", "gw-9", "--admin", "http://"+leads.Admin)
	voters := func(want string) {
		t.Helper()
		if err := Await(ctx, func() error {
			s, err := leads.Status(ctx)
			if err != nil {
				return err
			}
			if got := fmt.Sprint(s.Cluster.Voters); got != want {
				return fmt.Errorf("%s voters, want %s", got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	voters("1")                         // a pair has one
	if err := Await(ctx, func() error { // what the other gateways say is a second old at most
		out, _, _ := run(t, "status", "--admin", "http://"+leads.Admin)
		if strings.Contains(out, others[0].Name) {
			return fmt.Errorf("%s was taken out, and the status waits for it:\n%s", others[0].Name, out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// It may come back, and three vote again.
	others[0] = c.Restart(t, slices.Index(c.Gateways, others[0]))
	if err := others[0].AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	voters("3")
	for _, g := range others {
		lose(t, g, syscall.SIGKILL)
	}
	for _, args := range [][]string{{"leave", "--force", others[0].Name}, {"pool", "set", PoolName, "--k", "2"}} {
		if err := Await(ctx, func() error { // gossip has to notice
			_, said, code := run(t, append(args, "--admin", "http://"+leads.Admin)...)
			for _, word := range []string{"1 of 3 voters are seen", "start " + others[0].Name + " or " + others[1].Name + " again"} {
				if code != 1 || !strings.Contains(said, word) {
					return fmt.Errorf("%v: exit code %d, %q is not in: %s", args, code, word, said)
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
