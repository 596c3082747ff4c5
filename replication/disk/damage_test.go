package disk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kgate/kgate/replication"
)

// A damaged file is refused with the way out, and never a panic.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	own := replication.NewTable(7)
	for i := range 40 {
		put(t, own, i)
		if err := s.Write(s.Pending("p", own, replication.NewReplicaSet())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	refused := 0
	const files = 220
	for i := range files {
		bad := append([]byte(nil), good...)
		switch at := r.IntN(len(bad)); i % 3 {
		case 0:
			bad[at] ^= 1 << r.IntN(8)
		case 1:
			bad = bad[:at]
		case 2:
			clear(bad[at:min(len(bad), at+1+r.IntN(2048))])
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, "c")
		if err == nil {
			_, err = s.Load()
		}
		if err != nil {
			refused++
			if !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), "move it away") && !strings.Contains(err.Error(), "move the file away") && !strings.Contains(err.Error(), "newer version") {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	t.Logf("%d of %d damaged files refused", refused, files)
}
