package membership

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/journal"
)

// slowFiles is a disk on which each sync takes a while.
type slowFiles struct {
	journal.OS
	delay *atomic.Int64
}

type slowHandle struct {
	journal.Handle
	delay *atomic.Int64
}

func (s slowFiles) slow(h journal.Handle, err error) (journal.Handle, error) {
	return slowHandle{h, s.delay}, err
}

func (s slowFiles) Open(path string) (journal.Handle, error)   { return s.slow(s.OS.Open(path)) }
func (s slowFiles) Create(path string) (journal.Handle, error) { return s.slow(s.OS.Create(path)) }

func (h slowHandle) Sync() error {
	time.Sleep(time.Duration(h.delay.Load()))
	return h.Handle.Sync()
}

// notes keeps a log for a test.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// Disks on which a sync takes long elect a leader, and another one when it is gone; the
// log names the disk.
func TestSlowDisks(t *testing.T) {
	for _, c := range []struct{ lease, sync time.Duration }{
		{3 * time.Second, 100 * time.Millisecond},
		{time.Second, 60 * time.Millisecond},
		{time.Second, 200 * time.Millisecond},
	} {
		t.Run(c.lease.String()+" "+c.sync.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				var log notes
				delay := new(atomic.Int64)
				delay.Store(int64(c.sync))
				started := func(name string, join ...string) *gateway {
					return n.start(t, name, config{
						expect: 3, lease: c.lease, dir: t.TempDir(), join: join, files: slowFiles{delay: delay},
						logs: slog.New(slog.NewTextHandler(&log, nil)),
					})
				}
				began := time.Now()
				a := started("a")
				gateways := []*gateway{a, started("b", a.gossip), started("c", a.gossip)}
				leader := leaderOf(t, gateways)
				t.Logf("a leader after %v", time.Since(began))
				for _, g := range gateways {
					g.ready()
				}
				t.Logf("all ready after %v", time.Since(began))
				if !strings.Contains(log.String(), "the disk of data_dir is slow") {
					t.Error("no log names the disk")
				}
				began = time.Now()
				leader.kill()
				leaderOf(t, gateways)
				t.Logf("the next leader after %v", time.Since(began))
			})
		})
	}
}

// A leader whose disk begins to take 2 s for each sync keeps the leases of all.
func TestSlowLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		delays := make(map[string]*atomic.Int64)
		started := func(name string, join ...string) *gateway {
			delays[name] = new(atomic.Int64)
			return n.start(t, name, config{
				expect: 3, lease: 3 * time.Second, dir: t.TempDir(), join: join, files: slowFiles{delay: delays[name]}, stays: true,
			})
		}
		a := started("a")
		gateways := []*gateway{a, started("b", a.gossip), started("c", a.gossip)}
		settle(t, gateways)
		leader := leaderOf(t, gateways)
		delays[leader.name].Store(int64(2 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		if err := leader.DefinePool(ctx, Pool{Name: "p", K: 3, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}); err != nil {
			t.Error(err)
		}
		t.Logf("agreed after %v", time.Since(began))
		for _, g := range gateways {
			if !g.Standing().Valid(time.Now()) {
				t.Errorf("%s has lost its lease", g.name)
			}
		}
		delays[leader.name].Store(0)
	})
}

// A leader whose disk hangs leads no more: nothing is agreed on through it. The others
// keep their leases meanwhile.
func TestDiskOfTheLeaderHangs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		delays := make(map[string]*atomic.Int64)
		started := func(name string, join ...string) *gateway {
			delays[name] = new(atomic.Int64)
			return n.start(t, name, config{
				expect: 3, lease: 2 * time.Second, dir: t.TempDir(), join: join, files: slowFiles{delay: delays[name]}, stays: true,
			})
		}
		a := started("a")
		gateways := []*gateway{a, started("b", a.gossip), started("c", a.gossip)}
		settle(t, gateways)
		leader := leaderOf(t, gateways)
		others := without(gateways, leader)
		delays[leader.name].Store(int64(6 * time.Second))
		defer delays[leader.name].Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		if err := others[0].DefinePool(ctx, Pool{Name: "p", K: 3, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		t.Logf("agreed after %v", took)
		if bound := 5 * time.Second; took > bound {
			t.Errorf("agreed after %v, want less than %v", took, bound)
		}
		for _, g := range others {
			if !g.Standing().Valid(time.Now()) {
				t.Errorf("%s has lost its lease", g.name)
			}
		}
	})
}

// A gateway that comes when the start of the log is gone gets a snapshot, and has it on
// disk; so does one that was away meanwhile.
func TestSnapshotsGetToDisk(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		root := t.TempDir()
		dir := func(name string) string { return filepath.Join(root, name) }
		three := n.three(t, dir)
		settle(t, three)
		define(t, three[0], "p", 1)
		away := followerOf(t, three)
		away.kill()
		rest := without(three, away)
		for k := range 600 { // the log keeps less than that
			agreeOnK(t, rest[0], "p", 2+k)
		}
		back := n.start(t, away.name, config{expect: 3, dir: dir(away.name), join: []string{rest[0].gossip}})
		fourth := n.start(t, "d", config{joining: true, dir: dir("d"), join: []string{rest[0].gossip}})
		back.ready()
		fourth.ready()
		fourth.kill()
		fourth = n.start(t, "d", config{joining: true, dir: dir("d"), join: []string{rest[0].gossip}})
		if k := kOf(fourth); k != 601 {
			t.Errorf("the disk has k %d", k)
		}
		fourth.ready()
		for _, g := range []*gateway{back, fourth} {
			until(t, g.name+" knows k", func() bool { return kOf(g) == 601 })
		}
	})
}
