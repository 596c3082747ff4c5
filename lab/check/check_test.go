package check_test

import (
	"errors"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/bv95"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/sim"
)

// Protocols that are right pass, in every order of messages.
func TestExplore(t *testing.T) {
	for _, s := range []check.Scope{
		{Protocol: central.Spec(), Nodes: 3, K: 2, Requests: 1, AnyOrder: true},
		{Protocol: bv95.A(), Nodes: 3, K: 1, Requests: 2, AnyOrder: true},
	} {
		states, err := check.Explore(s)
		t.Logf("%s: %d states", s.Protocol.Name, states)
		if err != nil || states < 100 {
			t.Errorf("%s: %d states, %v", s.Protocol.Name, states, err)
		}
	}
}

// A protocol that is wrong is found, in the way in which it is wrong.
func TestExploreFinds(t *testing.T) {
	for want, p := range map[error]protocol.Spec{
		check.ErrUnsafe:  made(func(h protocol.Host) protocol.Protocol { return &anarchy{host: h} }),
		check.ErrStarved: made(func(h protocol.Host) protocol.Protocol { return &anarchy{host: h, shy: true} }),
		check.ErrPanic:   made(func(protocol.Host) protocol.Protocol { return new(anarchy) }),
	} {
		if _, err := check.Explore(check.Scope{Protocol: p, Nodes: 2, K: 1, Requests: 1}); !errors.Is(err, want) {
			t.Errorf("found %v, want %v", err, want)
		}
	}
	if _, err := check.Explore(check.Scope{Protocol: central.Spec(), Nodes: 3, K: 1, Requests: 2, States: 10}); !errors.Is(err, check.ErrTooLarge) {
		t.Error(err)
	}
}

func TestFuzz(t *testing.T) {
	for seed := range uint64(20) {
		if err := check.Fuzz(central.Spec(), check.Claims{K: 3}, seed); err != nil {
			t.Error(err)
		}
	}
	wild := made(func(h protocol.Host) protocol.Protocol { return &anarchy{host: h} })
	if err := check.Fuzz(wild, check.Claims{K: 1}, 1); err == nil {
		t.Error("a protocol without exclusion passes")
	}
	if err := check.Fuzz(central.Spec(), check.Claims{K: 1, Joins: true}, 2); err == nil {
		t.Error("a protocol without joins has them")
	}
}

func made(inner func(protocol.Host) protocol.Protocol) protocol.Spec {
	return protocol.Spec{Name: "planted", New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
		return protocol.Serial(h, s.Nodes, inner), nil
	}}
}

// anarchy lets everybody in; if it is shy, nobody but node 0.
type anarchy struct {
	host protocol.Host
	shy  bool
}

func (a *anarchy) Acquire(node int, t protocol.Request) {
	if !a.shy || node == 0 {
		a.host.Grant(node, t)
	}
}
func (*anarchy) Release(int, protocol.Request) {}
func (*anarchy) Cancel(int, protocol.Request)  {}
func (*anarchy) Deliver(int, int, any)         {}
func (*anarchy) Due(int, sim.Timer)            {}
