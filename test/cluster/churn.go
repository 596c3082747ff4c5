package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// SoakVariable asks for the long runs of the tests that have a short one.
const SoakVariable = "KGATE_SOAK"

// Soak tells whether the long runs are asked for.
func Soak() bool { return os.Getenv(SoakVariable) != "" }

// OnlySoak skips the test unless the long runs are asked for, and says what has the claim
// otherwise.
func OnlySoak(tb testing.TB, elsewhere string) {
	tb.Helper()
	if !Soak() {
		tb.Skip(elsewhere + "; " + SoakVariable + "=1 asks for this one")
	}
}

// Count returns the number in an environment variable, or else one of two
// defaults: for the ordinary run, and for the long one.
func Count(tb testing.TB, variable string, ordinary, soak int) int {
	tb.Helper()
	text := os.Getenv(variable)
	switch {
	case text == "" && Soak():
		return soak
	case text == "":
		return ordinary
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Lease returns a lease that gateways do not lose because the machine has other work to do:
// 6 s, and the given one in the long run, which is for a quiet machine.
func Lease(soak time.Duration) time.Duration {
	if Soak() {
		return soak
	}
	return 6 * time.Second
}

// Whole is how long after the loss of a gateway at most all k slots are in use
// again, and the longest that a request may wait for it.
func Whole(lease time.Duration) time.Duration { return lease*11/10 + time.Second }

// Roles are the places, in Cluster.Gateways, of those that have a part of their
// own. The baton may be on its way: -1.
type Roles struct{ Leader, Home, Baton int }

// Of returns in words what a gateway is.
func (r Roles) Of(i int) string {
	text := ""
	for _, role := range []struct {
		at   int
		name string
	}{{r.Leader, " leader"}, {r.Home, " home"}, {r.Baton, " baton"}} {
		if role.at == i {
			text += role.name
		}
	}
	return text
}

// Roles asks all gateways at the same time who is what, until there is a leader
// and a home.
func (c *Cluster) Roles(ctx context.Context) (roles Roles, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = Await(ctx, func() error {
		roles, err = c.roles(ctx)
		if err == nil && (roles.Leader < 0 || roles.Home < 0) {
			err = errors.New("there is no leader, or no home")
		}
		return err
	})
	return roles, err
}

func (c *Cluster) roles(ctx context.Context) (Roles, error) {
	states := make([]*admin.Status, len(c.Gateways))
	errs := make([]error, len(c.Gateways))
	var wg sync.WaitGroup
	for i, g := range c.Gateways {
		wg.Go(func() { states[i], errs[i] = g.Status(ctx) })
	}
	wg.Wait()
	roles := Roles{-1, -1, -1}
	for i, s := range states {
		if errs[i] != nil {
			return roles, errs[i]
		}
		for _, p := range s.Pools {
			if p.Name == PoolName && p.BatonHere {
				roles.Baton = i
			}
			if p.Name == PoolName {
				roles.Home = c.place(p.Home)
			}
		}
		roles.Leader = c.place(s.Cluster.Leader)
	}
	return roles, nil
}

func (c *Cluster) place(name string) int {
	for i, g := range c.Gateways {
		if g.Name == name {
			return i
		}
	}
	return -1
}

// AwaitReady waits until all gateways admit requests.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	for _, g := range c.Gateways {
		if err := g.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// KeptLeases fails the test if gateways other than those named have lost their leases.
func KeptLeases(tb testing.TB, c *Cluster, may ...*Gateway) {
	tb.Helper()
	for _, g := range c.Gateways {
		if len(g.Log.Records("lease lost: rejoining as a new incarnation")) > 0 && !slices.Contains(may, g) {
			tb.Errorf("%s has lost its lease", g.Name)
		}
	}
}

// Refusals sums up results that are not OK, for people.
func Refusals(answers []Answer) string {
	n := make(map[string]int)
	for _, a := range answers {
		if a.Result != OK {
			n[a.Gateway+": "+a.Result]++
		}
	}
	return fmt.Sprint(n)
}
