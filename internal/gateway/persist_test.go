package gateway

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// noting is a cluster whose data directory remembers that it keeps tickets.
type noting struct {
	Views
	noted *bool
}

func (n noting) KeepsTickets() (before bool, err error) {
	before, *n.noted = *n.noted, true
	return before, nil
}

// TestMissingTicketsAreTold: a file of tickets that is gone, empty or damaged where there
// was one is an ERROR; that there is none yet is not.
func TestMissingTicketsAreTold(t *testing.T) {
	dir, noted := t.TempDir(), false
	file := filepath.Join(dir, "tickets", "tickets.db")
	for _, c := range []struct {
		name   string
		change func() error
		says   string
	}{
		{"the first start", func() error { return nil }, ""},
		{"the next one", func() error { return nil }, ""},
		{"gone", func() error { return os.Remove(file) }, "is gone from data_dir"},
		{"gone with its folder", func() error { return os.RemoveAll(filepath.Dir(file)) }, "is gone from data_dir"},
		{"empty", func() error { return os.Truncate(file, 0) }, "move the file away"},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		g, err := New(Config{DataDir: dir, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			t.Fatal(err)
		}
		g.views = noting{noted: &noted}
		g.loadDisk("c")
		g.cancel()
		g.wg.Wait()
		if got := logged.String(); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%s: logged %q, want something with %q", c.name, got, c.says)
		}
	}
}
