package raftfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/journal/journaltest"
)

func open(t testing.TB, d *journaltest.Disk, path string) *File {
	t.Helper()
	f, err := Open(path, Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func logEntry(index, term uint64) *raft.Log {
	return &raft.Log{
		Index: index, Term: term, Type: raft.LogType(index % 2), Data: fmt.Append(nil, "data", index),
		Extensions: []byte{byte(index)}, AppendedAt: time.Unix(int64(index), 0).UTC(),
	}
}

func vote(f *File, term uint64, candidate string) error {
	return errors.Join(f.SetUint64([]byte(keyTerm), term), f.SetUint64([]byte(KeyVoteTerm), term), f.Set([]byte(KeyVoteCandidate), []byte(candidate)))
}

func takeSnapshot(f *File, index, term uint64, data string) error {
	sink, err := f.Create(1, index, term, raft.Configuration{Servers: []raft.Server{{ID: "a"}}}, 1, nil)
	if err != nil {
		return err
	}
	_, err = sink.Write([]byte(data))
	return errors.Join(err, sink.Close())
}

// fill writes a bit of everything.
func fill(t testing.TB, f *File) {
	t.Helper()
	try(t, f.SetNote(json.RawMessage(`{"name":"a"}`)), vote(f, 1, "a"))
	for i := uint64(1); i <= 40; i++ {
		try(t, f.StoreLog(logEntry(i, 1+i/8)))
		if i%8 == 0 {
			try(t, vote(f, 1+i/8, "b"))
		}
	}
	try(t, takeSnapshot(f, 20, 3, "snapshot"), f.DeleteRange(1, 10))
	f.NoteCommitted(Position{40, 6})
}

func TestReopen(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	f := open(t, d, path)
	fill(t, f)
	want := f.state
	try(t, f.Close())
	f = open(t, d, path)
	if !reflect.DeepEqual(f.state, want) || f.Committed() != (Position{40, 6}) || f.Last() != (Position{40, 6}) {
		t.Errorf("%+v, want %+v", f.state, want)
	}
	term, err := f.GetUint64([]byte(keyTerm))
	if first, _ := f.FirstIndex(); err != nil || term != 6 || first != 11 {
		t.Errorf("term %d, first entry %d: %v", term, first, err)
	}
	metas, _ := f.List()
	_, data, err := f.Open(metas[0].ID)
	try(t, err)
	b := make([]byte, 20)
	if n, _ := data.Read(b); string(b[:n]) != "snapshot" {
		t.Errorf("snapshot %q", b[:n])
	}
	try(t, f.Close())
	if err := f.SetNote(json.RawMessage("1")); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A vote is one write, for whoever gives it and for the candidate; a term alone
// waits for the next message.
func TestOneSyncForAVote(t *testing.T) {
	d := journaltest.NewDisk()
	f := open(t, d, filepath.Join(t.TempDir(), "db"))
	defer f.Close()
	syncs := func(what string, want int, do func() error) {
		t.Helper()
		before := d.Syncs()
		try(t, do())
		if got := d.Syncs() - before; got != want {
			t.Errorf("%s: %d syncs, want %d", what, got, want)
		}
	}
	syncs("vote", 1, func() error { return vote(f, 5, "b") })
	syncs("the same vote", 0, func() error { return vote(f, 5, "b") })
	syncs("term", 1, func() error { return errors.Join(f.SetUint64([]byte(keyTerm), 6), f.Flush(), f.Flush()) })
	syncs("term with entries", 1, func() error {
		return errors.Join(f.SetUint64([]byte(keyTerm), 7), f.StoreLog(logEntry(1, 7)), f.Flush())
	})
	for term := uint64(8); term < 40; term++ {
		syncs("candidate", 1, func() error {
			err := f.SetUint64([]byte(keyTerm), term)
			var asked sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				asked.Go(func() { errs[i] = f.VoteForSelf(term, []byte("a")) })
			}
			err = errors.Join(err, f.SetUint64([]byte(KeyVoteTerm), term), f.Set([]byte(KeyVoteCandidate), []byte("a")))
			asked.Wait()
			return errors.Join(append(errs, err)...)
		})
	}
	syncs("late question", 0, func() error { return f.VoteForSelf(8, []byte("a")) })
	if v, _ := f.GetUint64([]byte(KeyVoteTerm)); v != 39 {
		t.Errorf("voted in term %d", v)
	}
	syncs("half a vote", 1, func() error {
		return errors.Join(f.SetUint64([]byte(keyTerm), 50), f.SetUint64([]byte(KeyVoteTerm), 50), f.Flush())
	})
	if stored := f.state.stable[KeyVoteTerm]; stored[0] != 39 {
		t.Error("the term of a vote was written without its candidate")
	}
}

// Damage of 660 kinds: each is told, or has no effect.
func TestDamage(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	f := open(t, d, path)
	fill(t, f)
	want := f.state
	try(t, f.Close())
	good := d.Read(path)
	told := 0
	for name, bad := range journaltest.Damage(good, 660) {
		d := journaltest.NewDisk()
		d.Write(path, bad)
		switch f, err := Open(path, Options{FS: d}); {
		case err == nil:
			try(t, f.Close())
			if !reflect.DeepEqual(f.state, want) {
				t.Errorf("%s: read as another state", name)
			}
		case errors.Is(err, journal.ErrDamaged), errors.Is(err, journal.ErrForeign):
			told++
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("660 damaged files: %d refused, %d with nothing lost", told, 660-told)
	if told < 400 {
		t.Errorf("only %d noticed", told)
	}
}

// The power goes at any moment: what was acknowledged is there, and of the write
// that was under way all or nothing.
func TestPowerLoss(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		d := journaltest.NewDisk()
		f, err := Open(path, Options{FS: d, rewriteAt: 8000}) // rewrites happen as well
		try(t, err)
		last := uint64(0)
		for range 1 + r.IntN(60) {
			switch r.IntN(4) {
			case 0:
				try(t, vote(f, last+1, "c"))
			case 1:
				try(t, takeSnapshot(f, last, 1, "s"))
			default:
				last++
				try(t, f.StoreLog(logEntry(last, 1)))
				f.NoteCommitted(Position{last, 1})
			}
		}
		want := whole(t, f)
		// What is under way when the power goes: written, and not synced.
		if r.IntN(2) == 0 {
			d.Interrupt()
			_ = f.StoreLog(logEntry(last+1, 1))
		}
		try(t, f.Close())
		again, err := Open(path, Options{FS: d.Lose(r)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := whole(t, again); got != want {
			try(t, again.DeleteRange(last+1, last+1))
			if got := whole(t, again); got != want {
				t.Fatalf("seed %d: %s, want %s", seed, got, want)
			}
		}
		// And it goes on from there.
		try(t, again.StoreLog(logEntry(last+1, 1)), again.Close())
	}
}

func whole(t testing.TB, f *File) string {
	t.Helper()
	data, err := json.Marshal(f.state.whole())
	try(t, err)
	return string(data)
}

func TestFullDisk(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	var told []error
	f, err := Open(path, Options{FS: d, Failed: func(err error) { told = append(told, err) }})
	try(t, err)
	fill(t, f)
	want := whole(t, f)
	d.Fill(journaltest.ErrNoSpace)
	for range 3 {
		if err := f.StoreLog(logEntry(41, 6)); !errors.Is(err, journaltest.ErrNoSpace) {
			t.Errorf("%v", err)
		}
	}
	// Raft panics when a term cannot be set: that waits for the message.
	try(t, f.SetUint64([]byte(keyTerm), 90))
	if err := f.Flush(); !errors.Is(err, journaltest.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	d.Fill(nil)
	if err := f.StoreLog(logEntry(41, 6)); !errors.Is(err, journaltest.ErrNoSpace) {
		t.Errorf("a disk that has failed is believed again: %v", err)
	}
	if len(told) != 1 {
		t.Errorf("told %v", told)
	}
	_ = f.Close()
	f = open(t, d, path)
	if got := whole(t, f); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	try(t, f.Close())
}

// What is noted as agreed on while a write is under way is on disk without another write.
func TestNotedDuringAWrite(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	var f *File
	f, err := Open(path, Options{FS: d, Wrote: func(time.Duration) {
		if f != nil {
			f.NoteCommitted(Position{f.Last().Index + 1, 1}) // as raft applies the entry that is being written
		}
	}})
	try(t, err, f.StoreLog(logEntry(1, 1)), f.StoreLog(logEntry(2, 1)))
	data := d.Read(path)
	try(t, f.Close())
	d.Write(path, data) // as kill -9 leaves it
	f = open(t, d, path)
	if got := f.Committed(); got != (Position{2, 1}) {
		t.Errorf("%+v", got)
	}
	try(t, f.Close())
}

// Entries that are agreed on are not taken back.
func TestContradiction(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	f := open(t, d, path)
	fill(t, f)
	try(t, f.StoreLog(logEntry(41, 6)))
	try(t, f.DeleteRange(41, 41)) // it was not agreed on
	if err := f.DeleteRange(40, 40); !errors.Is(err, ErrContradiction) {
		t.Errorf("%v", err)
	}
	_ = f.Close()
	f = open(t, d, path)
	try(t, takeSnapshot(f, 40, 6, "newer"), f.DeleteRange(11, 40)) // a snapshot has it
	try(t, f.StoreLog(logEntry(41, 6)), f.Close())
}

func TestGrowth(t *testing.T) {
	d := journaltest.NewDisk()
	path := filepath.Join(t.TempDir(), "db")
	f := open(t, d, path)
	big := strings.Repeat("x", 100_000)
	for i := range uint64(100) {
		try(t, vote(f, i+1, big))
	}
	if size := len(d.Read(path)); size > 2<<20 {
		t.Errorf("%d bytes for 100 votes", size)
	}
	try(t, f.Close())
	f = open(t, d, path)
	if term, _ := f.GetUint64([]byte(keyTerm)); term != 100 {
		t.Errorf("term %d", term)
	}
	try(t, f.Close())
}

func TestRealFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	f, err := Open(path, Options{})
	try(t, err)
	fill(t, f)
	if _, err := Open(path, Options{}); !errors.Is(err, journal.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	try(t, f.StoreLog(logEntry(41, 6)), f.Close())
	f, err = Open(path, Options{})
	try(t, err)
	if f.Last().Index != 41 {
		t.Errorf("%+v", f.Last())
	}
	try(t, f.Close())
	b, err := os.ReadFile(path)
	try(t, err)
	b[16]++ // the format
	try(t, os.WriteFile(path, b, 0o600))
	if _, err := Open(path, Options{}); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("another format without its checksum: %v", err)
	}
}
