package disk

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/journal/journaltest"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

func openedOn(t *testing.T, d *journaltest.Disk, dir string) *Store {
	t.Helper()
	s, err := open(dir, "c", "", d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content formats all stored tables.
func content(t *testing.T, s *Store) string {
	t.Helper()
	data, err := json.Marshal(s.Load())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDamage: of 660 damaged files none panics, hangs, or is read as an older one.
func TestDamage(t *testing.T) {
	dir, d := t.TempDir(), journaltest.NewDisk()
	path := filepath.Join(dir, fileName)
	s := openedOn(t, d, dir)
	own := replication.NewTable(7)
	for i := range 40 {
		put(t, own, i)
		if err := s.Write(s.Pending("p", own, replication.NewReplicaSet())); err != nil {
			t.Fatal(err)
		}
	}
	want := content(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const files = 660
	refused := 0
	for name, bad := range journaltest.Damage(d.Read(path), files) {
		d := journaltest.NewDisk()
		d.Write(path, bad)
		switch s, err := open(dir, "c", "", d); {
		case err == nil:
			if content(t, s) != want {
				t.Errorf("%s: read as another state", name)
			}
			_ = s.Close()
		case errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrForeign):
			refused++
			if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "move the file away") {
				t.Errorf("%s: %v", name, err)
			}
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d damaged files: %d refused, %d with nothing lost", files, refused, files-refused)
	if refused < 400 {
		t.Errorf("only %d noticed", refused)
	}
}

// TestPowerLoss: the power goes at any moment. What was written is there, and of the
// write under way all or nothing.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		d := journaltest.NewDisk()
		s := openedOn(t, d, dir)
		own, other := replication.NewTable(7), replication.NewTable(3)
		step := func(n int) error {
			table := []*replication.Table{own, other}[r.IntN(2)]
			if records := table.Records(); len(records) > 0 && r.IntN(3) == 0 {
				table.Delete(records[r.IntN(len(records))].ID)
			} else {
				put(t, table, n)
			}
			return s.Write(s.Pending("p", own, copyOf(t, other)))
		}
		for n := range 1 + r.IntN(60) {
			if err := step(n); err != nil {
				t.Fatal(err)
			}
		}
		before := content(t, s)
		if r.IntN(2) == 0 {
			d.Interrupt()
			if step(100) == nil {
				t.Fatal("a write is acknowledged that was not synced")
			}
		}
		_ = s.Close()
		again, err := open(dir, "c", "", d.Lose(r))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := content(t, again); got != before {
			after := replication.NewReplicaSet()
			for _, want := range []*replication.Table{own, other} {
				if err := after.Restore(want.Since(0)); err != nil {
					t.Fatal(err)
				}
			}
			have := loaded(t, again, "p")
			for _, owner := range []kmutex.Node{7, 3} {
				if have.Of(owner).Version() != after.Of(owner).Version() {
					t.Fatalf("seed %d: node %d has version %d, want %d", seed, owner, have.Of(owner).Version(), after.Of(owner).Version())
				}
			}
		}
		_ = again.Close()
	}
}
