package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// noting is a cluster whose data directory remembers the mark of its tickets.
type noting struct {
	Views
	mark *string
}

func (n noting) TicketsMark() string { return *n.mark }

func (n noting) SetTicketsMark(mark string) error {
	*n.mark = mark
	return nil
}

// TestMissingTicketsAreTold: a file of tickets that is gone, old, empty or damaged where
// there was one is an ERROR; that there is none yet is not.
func TestMissingTicketsAreTold(t *testing.T) {
	dir, mark, before := t.TempDir(), "", ""
	file := filepath.Join(dir, "tickets", "tickets.db")
	old := filepath.Join(t.TempDir(), "old")
	for _, c := range []struct {
		name   string
		change func() error
		says   string
	}{
		{"the first start", func() error { return nil }, ""},
		{"the next one", func() error { return nil }, ""},
		{"ended before the mark was kept", func() error { mark = before; return nil }, ""},
		{"copied", func() error { return os.CopyFS(old, os.DirFS(filepath.Dir(file))) }, ""},
		{"an old copy", func() error {
			return errors.Join(os.RemoveAll(filepath.Dir(file)), os.CopyFS(filepath.Dir(file), os.DirFS(old)))
		}, "is not the one"},
		{"gone", func() error { return os.Remove(file) }, "is gone from data_dir"},
		{"gone with its folder", func() error { return os.RemoveAll(filepath.Dir(file)) }, "is gone from data_dir"},
		{"empty", func() error { return os.Truncate(file, 0) }, "move the file away"},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		g := New(Config{DataDir: dir, Observer: noObserver{}, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))})
		before, g.views = mark, noting{mark: &mark}
		g.standing.writer.load("c")
		g.cancel()
		g.wg.Wait()
		if got := logged.String(); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%s: logged %q, want something with %q", c.name, got, c.says)
		}
	}
}
