package serfring

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestReplaceAKey replaces the gossip key of two running gateways, one after the
// other: neither ever loses the other, and then the old key opens nothing.
func TestReplaceAKey(t *testing.T) {
	old, next := bytes.Repeat([]byte{1}, KeySize), bytes.Repeat([]byte{2}, KeySize)
	first := base("a", "1")
	first.Keys = [][]byte{old}
	a := start(t, first)
	second := base("b", "1", a.Addr())
	second.Keys = [][]byte{old}
	b := start(t, second)
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
	for _, keys := range [][][]byte{{old, next}, {next, old}, {next}} {
		for _, agent := range []*Agent{a, b} {
			if err := agent.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			// Longer than a gateway takes that hears nothing to give another up.
			for range 3 {
				time.Sleep(first.withDefaults().ProbeInterval)
				sees(t, a, "a/1/alive", "b/1/alive")
				sees(t, b, "a/1/alive", "b/1/alive")
			}
		}
	}
	late := base("c", "1", a.Addr())
	late.Keys = [][]byte{old}
	c := start(t, late)
	until(t, "the old key is refused", func() bool { return errors.Is(c.Problem(), ErrKey) })
	fresh := base("d", "1", a.Addr())
	fresh.Keys = [][]byte{next}
	start(t, fresh)
	sees(t, a, "a/1/alive", "b/1/alive", "d/1/alive")
}

func TestSetKeysRefuses(t *testing.T) {
	key := bytes.Repeat([]byte{1}, KeySize)
	open := start(t, base("a", "1"))
	if err := open.SetKeys([][]byte{key}); !errors.Is(err, errConfig) {
		t.Errorf("encryption begins: %v", err)
	}
	guarded := base("b", "1")
	guarded.Keys = [][]byte{key}
	b := start(t, guarded)
	for _, keys := range [][][]byte{nil, {key[:16]}, {key, key[:1]}} {
		if err := b.SetKeys(keys); !errors.Is(err, errConfig) {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
	if got := b.keyring.GetKeys(); len(got) != 1 || !bytes.Equal(got[0], key) {
		t.Errorf("a refused change left %d keys", len(got))
	}
}
