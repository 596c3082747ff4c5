package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExposed(t *testing.T) {
	me := os.Geteuid()
	for _, c := range []struct {
		mode  os.FileMode
		owner int
		uid   int
		says  string
	}{
		{0o700, me, me, ""},
		{0o755, me, me, ""},
		{0o775, me, me, ""},
		{0o777, me, me, "mode 0777"},
		{0o777 | os.ModeSticky, me, me, "mode 1777"},
		{0o702, me, AnyUser, "mode 0702"},
		{0o700, 4711, me, "belongs to user 4711"},
		{0o700, 4711, 4711, ""},
		{0o700, 4711, AnyUser, ""},
		{0o770, 0, 4711, ""}, // root may do everything anyway
	} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		if c.owner != me {
			if me != 0 {
				continue // only root can
			}
			if err := os.Chown(dir, c.owner, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := Exposed(dir, c.uid); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("mode %v, owner %d, run by %d: %q, want %q", c.mode, c.owner, c.uid, got, c.says)
		}
	}
	for _, none := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if got := Exposed(none, me); got != "" {
			t.Errorf("%q: %s", none, got)
		}
	}
}
