package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
)

// openOnce opens a data directory and closes it again, and returns the id that it has.
func openOnce(t *testing.T, dir, name string) core.ID {
	t.Helper()
	stored := core.NewStored(newID(), name)
	d, err := openDisk(Config{DataDir: dir, Name: name}.withDefaults(), stored, func() time.Duration { return time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	return stored.ID()
}

// A process that comes back with its directory is the same to the others.
func TestServerIDStays(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dir := t.TempDir()
		g := n.start(t, "a", config{expect: 1, dir: dir})
		g.ready()
		id := g.id
		g.kill()
		if again := openOnce(t, dir, "a"); again != id {
			t.Errorf("%d after %d", again, id)
		}
	})
}

func TestBadDataDirs(t *testing.T) {
	root := t.TempDir()
	place := func(name string) string { return filepath.Join(root, name) }
	write := func(path string, data []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(place("file"), []byte("hello"))
	write(place("garbage/kgate.db"), bytes.Repeat([]byte("garbage "), 4096))
	write(place("short/kgate.db"), []byte("short"))
	if err := os.MkdirAll(place("folder/kgate.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, format := range map[string]byte{"newer": journalFormat + 1, "older": journalFormat - 1} {
		openOnce(t, place(dir), "a")
		writeFormat(t, filepath.Join(place(dir), dataFile), format)
	}
	bolt := make([]byte, 32768)
	binary.LittleEndian.PutUint32(bolt[16:], 0xED0CDAED)
	write(place("bolt/kgate.db"), bolt)
	openOnce(t, place("damaged"), "a")
	data, err := os.ReadFile(filepath.Join(place("damaged"), dataFile))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-2] ^= 1
	write(place("damaged/kgate.db"), data)
	open, err := openDisk(Config{DataDir: place("open")}.withDefaults(), core.NewStored(1, "a"), func() time.Duration { return time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := open.close(); err != nil {
			t.Error(err)
		}
	}()
	cases := map[string]string{
		"file":    "must be a directory",
		"garbage": "damaged or not kgate's",
		"short":   "damaged or not kgate's",
		"folder":  "must be a directory",
		"newer":   "run the newer version",
		"older":   "stop all gateways, move the data directory of each away",
		"bolt":    "older version",
		"damaged": "damaged",
		"open":    "another kgate has it open",
	}
	if os.Getuid() != 0 { // root may write anywhere
		if err := os.MkdirAll(place("readonly"), 0o500); err != nil {
			t.Fatal(err)
		}
		cases["readonly"] = "must be able to write"
	}
	for dir, want := range cases {
		_, err := openDisk(Config{DataDir: place(dir)}.withDefaults(), core.NewStored(1, "a"), func() time.Duration { return time.Hour })
		if !errors.Is(err, errDataDir) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v\nwant something with %q", dir, err, want)
		}
	}
}

// writeFormat has a file be of another format.
func writeFormat(t *testing.T, path string, format byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[16] = format
	binary.LittleEndian.PutUint32(data[20:], crc32.Checksum(data[:20], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a disk can do that no test can on every machine.
func TestAdviceOnDisks(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "the disk is full",
		syscall.EDQUOT: "the disk is full",
		syscall.EROFS:  "must be able to write",
		syscall.EACCES: "must be able to write",
	} {
		wrapped := fmt.Errorf("open: %w", &os.PathError{Op: "open", Path: "kgate.db", Err: err})
		if got := advice(wrapped); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// A directory of a gateway of another name is refused, and so is a file in its place.
func TestStartFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dir := t.TempDir()
		g := n.start(t, "b", config{expect: 1, dir: dir})
		g.ready()
		g.kill()
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]string{dir: `belongs to the gateway "b"`, file: "must be a directory"} {
			_, err := Start(t.Context(), Config{Name: "a", Boot: "x", PeerAddr: "a:1", DataDir: dir, Discovery: g.agent, Links: wires{g}, Carrier: NewCarrier()})
			if !errors.Is(err, errDataDir) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	err := Config{Name: "", Boot: "a/b", PeerAddr: "nowhere", Lease: time.Millisecond}.Validate()
	if !errors.Is(err, errConfig) {
		t.Fatal(err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 5 || slices.Contains(lines, "") {
		t.Errorf("%d complaints:\n%v", len(lines), err)
	}
}

// A data directory remembers the mark of its tickets.
func TestTicketsMark(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dir := t.TempDir()
		for _, want := range []string{"", "one", "two"} {
			g := n.start(t, "a", config{expect: 1, dir: dir})
			if got := g.TicketsMark(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			for _, mark := range []string{"one", "two"}[:min(1+len(want), 2)] {
				if err := g.SetTicketsMark(mark); err != nil {
					t.Fatal(err)
				}
			}
			g.kill()
		}
	})
}
