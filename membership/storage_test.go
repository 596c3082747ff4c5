package membership

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

func openTestBolt(t *testing.T, path string) *boltStore {
	t.Helper()
	s, err := openBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The store behaves as raft's own store in memory does, over closing and
// opening again.
func TestBoltLikeInmem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		path := filepath.Join(dir, "db")
		have, want := openTestBolt(t, path), raft.NewInmemStore()
		next := uint64(1)
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var logs []*raft.Log
				for range rapid.IntRange(1, 5).Draw(rt, "n") {
					logs = append(logs, &raft.Log{
						Index: next, Term: next / 3, Type: raft.LogType(next % 2), Data: fmt.Append(nil, "data", next),
						Extensions: []byte{byte(next)}, AppendedAt: time.Unix(int64(next), 0).UTC(),
					})
					next++
				}
				if err := errors.Join(have.StoreLogs(logs), want.StoreLogs(logs)); err != nil {
					rt.Fatal(err)
				}
			},
			"cut the end": func(rt *rapid.T) {
				if next == 1 {
					rt.Skip()
				}
				from := rapid.Uint64Range(1, next-1).Draw(rt, "from")
				if err := errors.Join(have.DeleteRange(from, next-1), want.DeleteRange(from, next-1)); err != nil {
					rt.Fatal(err)
				}
				// Raft overwrites what it cut off.
				first, err := have.FirstIndex()
				if err != nil {
					rt.Fatal(err)
				}
				if next = from; first == 0 {
					next = max(next, 1)
				}
			},
			"cut the start": func(rt *rapid.T) {
				first, err := have.FirstIndex()
				if err != nil || first == 0 {
					rt.Skip()
				}
				to := rapid.Uint64Range(first, next-1).Draw(rt, "to")
				if err := errors.Join(have.DeleteRange(first, to), want.DeleteRange(first, to)); err != nil {
					rt.Fatal(err)
				}
			},
			"vote": func(rt *rapid.T) {
				key, number := []byte(rapid.SampledFrom([]string{"term", "vote"}).Draw(rt, "key")), rapid.Uint64().Draw(rt, "number")
				value := rapid.SliceOf(rapid.Byte()).Draw(rt, "value")
				if err := errors.Join(have.SetUint64(key, number), want.SetUint64(key, number), have.Set([]byte("who"), value), want.Set([]byte("who"), value)); err != nil {
					rt.Fatal(err)
				}
			},
			"reopen": func(rt *rapid.T) {
				if err := have.close(); err != nil {
					rt.Fatal(err)
				}
				have = openTestBolt(t, path)
			},
			"": func(rt *rapid.T) { compareStores(rt, have, want, next) },
		})
		if err := have.close(); err != nil {
			rt.Fatal(err)
		}
	})
}

func compareStores(t *rapid.T, have *boltStore, want *raft.InmemStore, next uint64) {
	hf, err1 := have.FirstIndex()
	hl, err2 := have.LastIndex()
	first := uint64(0)
	for i := uint64(1); i < next; i++ {
		var a, b raft.Log
		errA, errB := have.GetLog(i, &a), want.GetLog(i, &b)
		if fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("entry %d: %v and %v", i, errA, errB)
		}
		if errA != nil {
			continue
		}
		if first == 0 {
			first = i
		}
		if a.Index != b.Index || a.Term != b.Term || a.Type != b.Type || !bytes.Equal(a.Data, b.Data) ||
			!bytes.Equal(a.Extensions, b.Extensions) || !a.AppendedAt.Equal(b.AppendedAt) {
			t.Fatalf("entry %d: %+v and %+v", i, a, b)
		}
	}
	last := next - 1
	if first == 0 {
		last = 0
	}
	if err := errors.Join(err1, err2); err != nil || hf != first || hl != last {
		t.Fatalf("from %d to %d (%v), want %d to %d", hf, hl, err, first, last)
	}
	for _, key := range []string{"term", "vote", "nothing"} {
		a, err := have.GetUint64([]byte(key))
		b, _ := want.GetUint64([]byte(key)) // it has an error for what is not there
		if err != nil || a != b {
			t.Fatalf("%s: %d and %d, %v", key, a, b, err)
		}
	}
	a, err := have.Get([]byte("who"))
	b, _ := want.Get([]byte("who"))
	if err != nil || !bytes.Equal(a, b) {
		t.Fatalf("who: %v and %v, %v", a, b, err)
	}
}

func openAndClose(t *testing.T, dir, name, server string) (meta, bool) {
	t.Helper()
	s, err := openStorage(dir, name, server, hclog.NewNullLogger())
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
	s, err := openStorage(dir, "a", "a/3", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.setCluster("c1"), s.stable.SetUint64([]byte("CurrentTerm"), 1), s.close())
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
	for dir, m := range map[string]string{
		"newer":   `{"format":3,"name":"a","server":"a/1"}`,
		"older":   `{"format":1,"name":"a","server":"a/1"}`,
		"damaged": `{"format":`,
	} {
		openAndClose(t, place(dir), "a", "a/1")
		s := openTestBolt(t, filepath.Join(place(dir), "kgate.db"))
		if err := errors.Join(s.put(bucketMeta, bucketMeta, []byte(m)), s.close()); err != nil {
			t.Fatal(err)
		}
	}
	openAndClose(t, place("other"), "b", "b/1")
	open, err := openStorage(place("open"), "a", "a/1", hclog.NewNullLogger())
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
		_, err := openStorage(place(dir), "a", "a/1", hclog.NewNullLogger())
		if !errors.Is(err, ErrDataDir) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v\nwant something with %q", dir, err, want)
		}
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
	control, stream := listen(t, ""), listen(t, "")
	_, err := Start(t.Context(), Config{
		Name: "a", Boot: "x", PeerAddr: control.Addr().String(), DataDir: path,
		Discovery: still{}, Raft: layer{Listener: stream}, Control: layer{Listener: control},
	})
	if !errors.Is(err, ErrDataDir) {
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
	err := Config{Name: "", Boot: "a/b", PeerAddr: "nowhere", LeaderLease: 2 * time.Second, ElectionTimeout: time.Millisecond}.Validate()
	if !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 6 || slices.Contains(lines, "") {
		t.Errorf("%d complaints:\n%v", len(lines), err)
	}
}
