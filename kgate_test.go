package kgate

import (
	"context"
	"errors"
	"testing"
	"time"
)

// begin starts a node alone with a pool of one slot.
func begin(t *testing.T) *Node {
	t.Helper()
	cfg := Config{Name: "one", Peers: Peers{Listen: "127.0.0.1:0"}, Pools: []Pool{{Name: "p", K: 1}}}
	n, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFailsWhileItLeaves: a node that cannot go on ends, also when an operator has asked
// it to leave and it waits for a slot to come back.
func TestFailsWhileItLeaves(t *testing.T) {
	n := begin(t)
	slot, err := n.Acquire(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	defer slot.Release()
	failed, leave := make(chan error, 1), make(chan struct{})
	close(leave)
	n.wg.Go(func() { n.supervise(failed, leave) })
	for n.NotReady() == "" { // until it drains
		time.Sleep(time.Millisecond)
	}
	cause := errors.New("the disk is gone")
	failed <- cause
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the node goes on")
	}
	if err := n.Err(); !errors.Is(err, cause) {
		t.Errorf("ended by %v", err)
	}
}
