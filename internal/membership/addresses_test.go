package membership

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/peercall"
)

// TestAddressesInTurn: a gateway that is not found is tried at each address that anybody knows,
// again and again. An answer, however unwelcome, keeps its address.
func TestAddressesInTurn(t *testing.T) {
	b := addressBook{
		self: "a", failed: make(map[string][]string),
		view:    func() *View { return &View{Members: []Member{{Name: "b", Server: "b/1", PeerAddr: "view:1"}}} },
		servers: func() []raft.Server { return []raft.Server{{ID: "b/1", Address: address("raft:1", "b/1")}} },
	}
	b.note([]serfring.Member{{Name: "b", PeerAddr: "gossip:1", Status: serfring.StatusAlive}})
	gone := errors.New("connection refused")
	for i, c := range []struct {
		at  string
		err error // of the call
	}{
		{"view:1", nil},
		{"view:1", peercall.Reached{Err: errors.New("421 Misdirected Request")}},
		{"view:1", peercall.Reached{Err: context.DeadlineExceeded}},
		{"view:1", context.Canceled},
		{"view:1", gone},
		{"gossip:1", gone},
		{"raft:1", gone},
		{"view:1", context.DeadlineExceeded},
		{"gossip:1", context.Canceled},
		{"gossip:1", gone},
		{"raft:1", peercall.Reached{Err: gone}},
		{"raft:1", nil},
		{"raft:1", gone},
		{"view:1", nil},
	} {
		to, known := b.to("b/1")
		if !known || to != (peercall.To{Name: "b", Addr: c.at}) {
			t.Fatalf("call %d goes to %v, want %s", i, to, c.at)
		}
		b.tried(to, c.err)
	}
	for _, addr := range []string{"1", "2", "3", "4", "5"} { // as gossip may say
		b.tried(peercall.To{Name: "b", Addr: addr}, gone)
	}
	if got := b.failed["b"]; !slices.Equal(got, []string{"3", "4", "5"}) {
		t.Errorf("remembers %q", got)
	}
}
