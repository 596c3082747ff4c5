package raftfile

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/kgate/kgate/internal/journal/journaltest"
)

// The store behaves as raft's own store in memory does, over closing and
// opening again.
func TestLikeInmem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, path := journaltest.NewDisk(), filepath.Join(t.TempDir(), "db")
		have, want := open(t, d, path), raft.NewInmemStore()
		next := uint64(1)
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var logs []*raft.Log
				for range rapid.IntRange(1, 5).Draw(rt, "n") {
					logs = append(logs, logEntry(next, next/3))
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
				if err := have.Close(); err != nil {
					rt.Fatal(err)
				}
				have = open(t, d, path)
			},
			"": func(rt *rapid.T) { compareStores(rt, have, want, next) },
		})
		if err := have.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

func compareStores(t *rapid.T, have *File, want *raft.InmemStore, next uint64) {
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
