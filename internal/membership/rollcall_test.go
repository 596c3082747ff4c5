package membership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
)

// copyTo puts a copy of a data directory in place of another one.
func copyTo(t *testing.T, to, from string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

func agreeOnK(t *testing.T, g *gateway, pool string, k int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := g.SetK(ctx, pool, k, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// aged is a cluster of a, b and c with k 2 that has ended, and copies of its data
// directories from the time when k was 12.
func aged(t *testing.T, n *network, names ...string) (dirs, old func(name string) string) {
	t.Helper()
	root := t.TempDir()
	dirs = func(name string) string { return filepath.Join(root, name) }
	old = func(name string) string { return filepath.Join(root, "old", name) }
	var gateways []*gateway
	for i, name := range names {
		conf := config{expect: len(names), dir: dirs(name)}
		if i > 0 {
			conf.join = []string{gateways[0].gossip}
		}
		gateways = append(gateways, n.start(t, name, conf))
	}
	define(t, gateways[0], "p", 12)
	agree(t, gateways, names...)
	for _, name := range names {
		copyTo(t, old(name), dirs(name))
	}
	agreeOnK(t, gateways[0], "p", 2)
	agree(t, gateways, names...)
	for _, g := range gateways {
		g.kill()
	}
	return dirs, old
}

func kOf(g *gateway) int {
	p, _ := g.View().Pool("p")
	return p.K
}

// Old copies of one or two of three data directories are put back: k stays as it was
// agreed on last, whoever starts first.
func TestOldCopies(t *testing.T) {
	for _, back := range []string{"a", "b", "ab", "bc"} {
		t.Run(back, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				dirs, old := aged(t, &n, "a", "b", "c")
				for _, name := range strings.Split(back, "") {
					copyTo(t, dirs(name), old(name))
				}
				gateways := n.three(t, dirs)
				for _, g := range gateways {
					g.ready()
				}
				agree(t, gateways, "a", "b", "c")
				for _, g := range gateways {
					if kOf(g) != 2 {
						t.Errorf("%s: k is %d again", g.name, kOf(g))
					}
				}
			})
		})
	}
}

// Of two gateways one votes. With an old copy it could lead alone: it is refused.
func TestOldCopyOfTheOnlyVoter(t *testing.T) {
	virtual(t, func(t *testing.T) {
		n := network{lease: 3 * time.Second} // the witness has a lease to answer
		dirs, old := aged(t, &n, "a", "b")
		copyTo(t, dirs("a"), old("a"))
		b := n.start(t, "b", config{expect: 2, dir: dirs("b")})
		a := n.start(t, "a", config{expect: 2, dir: dirs("a"), join: []string{b.gossip}})
		select {
		case err := <-a.Failed():
			if !errors.Is(err, core.ErrBehind) || !strings.Contains(err.Error(), "move the directory away") {
				t.Errorf("%v", err)
			}
		case <-time.After(15 * time.Second):
			t.Errorf("an old copy is believed: k is %d", kOf(a))
		}
		if a.stats().Role == "leader" {
			t.Error("it leads")
		}
	})
}

// The one that knows better comes back when the others have gone on: it says so and
// takes nothing back.
func TestOldCopiesBeforeTheRightOne(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dirs, old := aged(t, &n, "a", "b", "c")
		copyTo(t, dirs("a"), old("a"))
		copyTo(t, dirs("b"), old("b"))
		a := n.start(t, "a", config{expect: 3, dir: dirs("a")})
		b := n.start(t, "b", config{expect: 3, dir: dirs("b"), join: []string{a.gossip}})
		a.ready()
		b.ready()
		c := n.start(t, "c", config{expect: 3, dir: dirs("c"), join: []string{a.gossip}})
		select {
		case err := <-c.Failed():
			if !strings.Contains(err.Error(), "have lost what was agreed on") {
				t.Errorf("%v", err)
			}
		case <-time.After(15 * time.Second):
			t.Error("nobody notices that what was agreed on is gone")
		}
	})
}
