package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, "c", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func record(owner kmutex.Node, n int) replication.Record {
	var secret [16]byte
	copy(secret[:], fmt.Sprint("secret ", n))
	return replication.Record{
		ID: replication.NewID(secret, owner), Stamp: int64(n), TTL: time.Minute, State: admission.TicketWaiting, Note: strings.Repeat("n", 200),
	}
}

func put(t *testing.T, into *replication.Table, n int) {
	t.Helper()
	if _, err := into.Put(record(into.Owner(), n)); err != nil {
		t.Fatal(err)
	}
}

// loaded returns the replicas of a pool that are on disk.
func loaded(t *testing.T, s *Store, pool string) *replication.ReplicaSet {
	t.Helper()
	c := replication.NewReplicaSet()
	for _, d := range s.Load()[pool] {
		if err := c.Restore(d); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func copyOf(t *testing.T, table *replication.Table) *replication.ReplicaSet {
	t.Helper()
	c := replication.NewReplicaSet()
	if err := c.Restore(table.Since(0)); err != nil {
		t.Fatal(err)
	}
	return c
}

// After any changes, writes and openings, Load returns the state at the last write.
func TestWhatIsWrittenIsThere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	s := opened(t, dir)
	own, other := replication.NewTable(7), replication.NewTable(3)
	for n := range 200 {
		table := []*replication.Table{own, other}[rng.IntN(2)]
		if records := table.Records(); len(records) > 0 && rng.IntN(3) == 0 {
			table.Delete(records[rng.IntN(len(records))].ID)
		} else {
			put(t, table, n)
		}
		if n%50 == 20 {
			if _, err := own.Absorb(replication.HandOver{Owner: kmutex.Node(100 + n), Successor: 7}); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(4) > 0 {
			continue
		}
		copies := copyOf(t, other)
		if err := s.Write(s.Pending("p", own, copies)); err != nil {
			t.Fatal(err)
		}
		if again := s.Pending("p", own, copies); len(again) != 0 {
			t.Fatalf("still to write: %v", again)
		}
		if rng.IntN(3) == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = opened(t, dir)
		}
		have := loaded(t, s, "p")
		for _, want := range []*replication.Table{own, other} {
			c := have.Of(want.Owner())
			if c.Version() != want.Version() || !slices.Equal(c.Records(), want.Records()) ||
				fmt.Sprint(c.Absorbed()) != fmt.Sprint(want.Absorbed()) {
				t.Fatalf("after %d changes node %d has version %d, absorbed %v; want %d, %v",
					n, want.Owner(), c.Version(), c.Absorbed(), want.Version(), want.Absorbed())
			}
		}
	}
	// A replica that is no longer needed goes, and other pools are untouched.
	if err := s.Write(s.Pending("q", own, replication.NewReplicaSet())); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(s.Pending("p", own, replication.NewReplicaSet())); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(s.Pending("p", own, copyOf(t, other))); err != nil {
		t.Fatal(err)
	}
	if p := loaded(t, s, "p").Owners(); !slices.Equal(p, []kmutex.Node{3, 7}) {
		t.Errorf("after it came back: owners %v", p)
	}
	if err := s.Write(s.Pending("p", own, replication.NewReplicaSet())); err != nil {
		t.Fatal(err)
	}
	if p, q := loaded(t, s, "p").Owners(), loaded(t, s, "q").Owners(); !slices.Equal(p, []kmutex.Node{7}) || !slices.Equal(q, p) {
		t.Errorf("owners %v and %v", p, q)
	}
}

func TestForeignNewerDamaged(t *testing.T) {
	header := func(change func(b []byte)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, fileName)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			change(b)
			binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], crc32.MakeTable(crc32.Castagnoli)))
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*testing.T, string)
		cluster string
		is      error
		says    string
	}{
		"foreign": {func(*testing.T, string) {}, "other", errForeign, `"c", this one is "other"; give each`},
		"newer":   {header(func(b []byte) { b[16]++ }), "c", journal.ErrNewer, "run the newer version"},
		"older":   {header(func(b []byte) { b[16]-- }), "c", journal.ErrOlder, "move the file away"},
		"damaged": {header(func(b []byte) { clear(b[4096:]) }), "c", journal.ErrDamaged, "move the file away: the tickets in it are lost then"},
		"empty": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, fileName), 0); err != nil {
				t.Fatal(err)
			}
		}, "c", journal.ErrDamaged, "move the file away"},
		"another program's": {header(func(b []byte) { b[0]++ }), "c", journal.ErrForeign, "not kgate's"},
		"open":              {func(t *testing.T, dir string) { opened(t, dir) }, "c", journal.ErrInUse, "another kgate has it open"},
		"a file": {func(t *testing.T, dir string) {
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "c", syscall.ENOTDIR, "tickets"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tickets")
			s := opened(t, dir)
			own := replication.NewTable(7)
			put(t, own, 1)
			if err := errors.Join(s.Write(s.Pending("p", own, replication.NewReplicaSet())), s.Close()); err != nil {
				t.Fatal(err)
			}
			tc.change(t, dir)
			if _, err := Open(dir, tc.cluster, ""); !errors.Is(err, errDisk) || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOldCopy: an old copy of the file is noticed, and nothing else is.
func TestOldCopy(t *testing.T) {
	dir, old := t.TempDir(), filepath.Join(t.TempDir(), "old")
	kept, before := "", ""
	for _, c := range []struct {
		name  string
		do    func() error
		stale bool
	}{
		{"the first start", func() error { return nil }, false},
		{"the next one", func() error { return nil }, false},
		{"ended before the mark was kept", func() error { kept = before; return nil }, false},
		{"the one behind", func() error { return os.CopyFS(old, os.DirFS(dir)) }, false},
		{"an old copy", func() error { return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(old))) }, true},
		{"told once", func() error { return nil }, false},
		{"gone", func() error { return os.RemoveAll(dir) }, true},
		{"nothing was kept", func() error { kept = ""; return nil }, false},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, "c", kept)
		if err != nil {
			t.Fatal(err)
		}
		if s.Stale() != c.stale {
			t.Errorf("%s: stale %t", c.name, s.Stale())
		}
		before, kept = kept, s.Mark()
		table := replication.NewTable(7)
		put(t, table, 1)
		if err := errors.Join(s.Write(s.Pending("p", table, replication.NewReplicaSet())), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkWrite is one changed ticket among a thousand.
func BenchmarkWrite(b *testing.B) {
	s, err := Open(b.TempDir(), "c", "")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	table := replication.NewTable(1)
	for n := range 1000 {
		if _, err := table.Put(record(1, n)); err != nil {
			b.Fatal(err)
		}
	}
	for n := 0; b.Loop(); n++ {
		r := record(1, n%1000)
		r.Note = fmt.Sprint(n)
		if _, err := table.Put(r); err != nil {
			b.Fatal(err)
		}
		if err := s.Write(s.Pending("p", table, replication.NewReplicaSet())); err != nil {
			b.Fatal(err)
		}
	}
}
