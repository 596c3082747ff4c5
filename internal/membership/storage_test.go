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

	"github.com/kgate/kgate/internal/membership/raftfile"
)

func openAndClose(t *testing.T, dir, name, server string) (meta, bool) {
	t.Helper()
	s, err := openStorage(dir, name, server, raftfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return s.meta, s.fresh
}

func TestServerIDStaysOnceUsed(t *testing.T) {
	dir := t.TempDir()
	if m, fresh := openAndClose(t, dir, "a", "a/1"); m.Server != "a/1" || !fresh {
		t.Errorf("%+v, fresh %v", m, fresh)
	}
	// It never voted: the new boot is as good.
	if m, fresh := openAndClose(t, dir, "a", "a/2"); m.Server != "a/2" || !fresh {
		t.Errorf("%+v, fresh %v", m, fresh)
	}
	s, err := openStorage(dir, "a", "a/3", raftfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.setCluster("c1"), s.stable.SetUint64([]byte("CurrentTerm"), 1), s.flush(), s.close())
	if err != nil {
		t.Fatal(err)
	}
	if m, fresh := openAndClose(t, dir, "a", "a/4"); m.Server != "a/3" || m.Cluster != "c1" || fresh {
		t.Errorf("%+v, fresh %v", m, fresh)
	}
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
	for dir, format := range map[string]byte{"newer": raftfile.Format + 1, "older": raftfile.Format - 1} {
		openAndClose(t, place(dir), "a", "a/1")
		writeFormat(t, filepath.Join(place(dir), dataFile), format)
	}
	bolt := make([]byte, 32768)
	binary.LittleEndian.PutUint32(bolt[16:], 0xED0CDAED)
	write(place("bolt/kgate.db"), bolt)
	openAndClose(t, place("damaged"), "a", "a/1")
	data, err := os.ReadFile(filepath.Join(place("damaged"), dataFile))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-2] ^= 1
	write(place("damaged/kgate.db"), data)
	openAndClose(t, place("other"), "b", "b/1")
	open, err := openStorage(place("open"), "a", "a/1", raftfile.Options{})
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
		"older":   "move the directory away",
		"bolt":    "older version",
		"damaged": "damaged",
		"other":   `belongs to the gateway "b"`,
		"open":    "another kgate has it open",
	}
	if os.Getuid() != 0 { // root may write anywhere
		if err := os.MkdirAll(place("readonly"), 0o500); err != nil {
			t.Fatal(err)
		}
		cases["readonly"] = "must be able to write"
	}
	for dir, want := range cases {
		_, err := openStorage(place(dir), "a", "a/1", raftfile.Options{})
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

// What Start opened before it failed is closed again.
func TestStartFailsClean(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	control, stream := listenWire(t, ""), listenWire(t, "")
	_, err := Start(t.Context(), Config{
		Name: "a", Boot: "x", PeerAddr: control.Addr().String(), DataDir: path,
		Discovery: still{}, Links: links{}, Raft: layer{Listener: stream}, Control: layer{Listener: control},
	})
	if !errors.Is(err, errDataDir) {
		t.Errorf("%v", err)
	}
	if _, err := control.Accept(); err == nil {
		t.Error("the control listener is open")
	}
	if _, err := stream.Accept(); err == nil {
		t.Error("the raft listener is open")
	}
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
	dir := t.TempDir()
	for _, want := range []string{"", "one"} {
		s, err := openStorage(dir, "a", "a/1", raftfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		before := s.meta.Tickets
		err = errors.Join(s.setTicketsMark("one"), s.stable.SetUint64([]byte("CurrentTerm"), 1), s.flush(), s.close())
		if before != want || err != nil {
			t.Errorf("before: %q, want %q; %v", before, want, err)
		}
	}
}
