package core_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/lab/hosts"
)

// three returns a world of three that all stand, its leader, and another one.
func three(t *testing.T) (w *world, leads, other *hosts.Host) {
	t.Helper()
	w = started(t, 1, 3, time.Second)
	w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == 3 })
	w.define()
	w.run(time.Second)
	leads = w.Leader()
	return w, leads, w.other(leads)
}

// No election leads far ahead, and nobody speaks for another process: raft hears nothing of it.
func TestTermsThatNobodyReaches(t *testing.T) {
	_, l, o := three(t)
	before := o.Core.Term()
	for _, m := range []*pb.Message{
		{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(l.Core.ID())), To: new(uint64(o.Core.ID())), Term: new(before + core.MaxTermStep + 1)},
		{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(99)), To: new(uint64(o.Core.ID())), Term: new(before + 1)},
		{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(l.Core.ID())), To: new(uint64(99)), Term: new(before + 1)},
	} {
		o.Step(core.Received{l.Core.ID(), core.Raft(m), 0})
		if now := o.Core.Term(); now != before {
			t.Errorf("term %d after %d, by %v", now, before, m)
		}
	}
}

// A gateway goes itself, and asks for what any member may; what people ask for needs proof of their
// token, if the leader has one. The proof is good for one command at one process.
func TestWhoMayAskForWhat(t *testing.T) {
	w, l, o := three(t)
	leadsNode, otherNode := l.Standing.Node, o.Standing.Node
	tokens, tag := []string{"secret"}, uint64(99)
	core.SetTokens(l.Core, func() []string { return tokens })
	ask := func(cmd views.Command, prove func(data []byte) []byte) (refused string) {
		t.Helper()
		data, err := views.Encode(cmd)
		if err != nil {
			t.Fatal(err)
		}
		tag++
		m := &core.Command{Data: core.EncodeEntry(o.Core.ID(), tag, data)}
		m.Proof = prove(m.Data)
		for _, s := range l.Core.Step(l.Clock(), core.Received{o.Core.ID(), core.Message{Ask: m}, 0}).Send {
			if s.Message.Refusal != nil {
				refused = s.Message.Refusal.Why
			}
		}
		return refused
	}
	none := func([]byte) []byte { return nil }
	with := func(token string, to core.ID) func([]byte) []byte {
		return func(data []byte) []byte { return core.Proof(token, to, data) }
	}
	setK := views.Command{SetK: &views.SetK{Name: "p", K: 7}}
	k := func() int { w.run(time.Second); p, _ := l.Core.View().Pool("p"); return p.K }
	if why := ask(views.Command{Remove: &views.Remove{Node: leadsNode}}, none); why == "" || !l.Stands() {
		t.Errorf("another gateway is taken out: %q", why)
	}
	if why := ask(views.Command{Expire: &views.Expire{}}, none); why == "" {
		t.Error("it judges others")
	}
	for what, prove := range map[string]func([]byte) []byte{
		"no proof": none, "another token": with("guess", l.Core.ID()), "a proof for another process": with("secret", o.Core.ID()),
		"a proof of another command": func([]byte) []byte { return core.Proof("secret", l.Core.ID(), []byte("other")) },
	} {
		if why := ask(setK, prove); !strings.Contains(why, "admin token") || k() == 7 {
			t.Errorf("%s: %q, k %d", what, why, k())
		}
	}
	if why := ask(setK, with("secret", l.Core.ID())); why != "" || k() != 7 {
		t.Errorf("with proof: %q, k %d", why, k())
	}
	tokens = nil
	if why := ask(views.Command{SetK: &views.SetK{Name: "p", K: 8}}, none); why != "" || k() != 8 {
		t.Errorf("no token is needed: %q, k %d", why, k())
	}
	if why := ask(views.Command{Remove: &views.Remove{Node: otherNode}}, none); why != "" {
		t.Errorf("it does not take itself out: %q", why)
	}
}

// A gateway renews its own lease only.
func TestOwnLeaseOnly(t *testing.T) {
	_, l, o := three(t)
	before := core.Heard(l.Core, l.Standing.Node)
	l.Core.Step(l.Clock(), core.Received{o.Core.ID(), core.Message{Renew: &core.Renew{Renewal: lease.Renewal{Node: l.Standing.Node, Tag: 999}}}, 0})
	if core.Heard(l.Core, l.Standing.Node) != before {
		t.Error("a renewal of another gateway's lease is taken")
	}
}

// Nobody but the leader grants a lease, and who does not vote gives back nothing of another one: neither to the leader, nor
// through a member that takes it for the other one's own word.
func TestSpeaksForNoOther(t *testing.T) {
	for _, lie := range []string{"grants", "knocks", "joins"} {
		t.Run(lie, func(t *testing.T) {
			w := started(t, 1, 4, 3*time.Second)
			w.until(20*time.Second, func() bool { return len(w.hosts[0].Core.Voters()) == 3 })
			w.run(time.Second)
			l := w.Leader()
			var lost, honest, liar *hosts.Host
			for _, h := range w.hosts {
				switch {
				case h == l:
				case !slices.Contains(l.Core.Voters(), h.Core.ID()):
					liar = h
				case lost == nil:
					lost = h
				default:
					honest = h
				}
			}
			node := lost.Standing.Node
			join := views.Join{
				Name: lost.Name, Boot: lost.Boot + ".1", PeerAddr: lost.Name + ":7080", Server: strconv.FormatUint(uint64(lost.Core.ID()), 16), Voided: node,
			}
			says := func(to *hosts.Host, m core.Message) { to.Step(core.Received{liar.Core.ID(), m, 0}) }
			apart(lost, l, w.Cut)
			for end := w.Now() + 3*w.lease; w.Now() < end; w.run(w.lease / 50) { // the world sees who stands without a lease
				switch lie {
				case "grants":
					for tag := range uint64(40) {
						says(lost, core.Message{Grant: &core.Grant{Renewal: lease.Renewal{Node: node, Tag: 1 + tag}}})
					}
				case "knocks":
					says(l, core.Message{Knocks: &join})
				case "joins":
					says(honest, core.Message{Join: &core.Join{Join: join}})
				}
			}
		})
	}
}

// A gateway whose state is not what the others have agreed on says so, and stands no more; it goes on
// voting.
func TestStatesAreCompared(t *testing.T) {
	w, l, o := three(t)
	_, applied := l.Core.Applied()
	applied.Digest = []byte("another")
	renewal := lease.Renewal{Node: o.Standing.Node, Tag: 1}
	o.Step(core.Received{l.Core.ID(), core.Message{Grant: &core.Grant{Renewal: renewal, Applied: applied}}, 0})
	w.run(5 * time.Second)
	if err := o.Core.Problem(); !o.Core.Diverged() || err == nil || !strings.Contains(err.Error(), "data directory away") {
		t.Errorf("it says %v", err)
	}
	if o.Stands() {
		t.Error("it stands")
	}
}

// What was agreed on stays: a leader that sends other entries in its place has lost it, and this
// process ends.
func TestRewritten(t *testing.T) {
	_, l, o := three(t)
	term := o.Core.Term() + 1
	m := &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(l.Core.ID())), To: new(uint64(o.Core.ID())), Term: &term, Index: new(uint64(2)), LogTerm: new(uint64(2)),
		Entries: []*pb.Entry{{Type: pb.EntryNormal.Enum(), Index: new(uint64(3)), Term: &term}},
	}
	if agreed, _ := o.Core.Applied(); agreed.Index < 3 {
		t.Fatalf("agreed up to %d", agreed.Index)
	}
	out := o.Core.Step(o.Clock(), core.Received{l.Core.ID(), core.Raft(m), 0})
	if !errors.Is(out.Failed, core.ErrContradiction) {
		t.Errorf("%v", out.Failed)
	}
}

// Who does not hear the leader says who leads, not that nobody does.
func TestLeadsElsewhere(t *testing.T) {
	w, l, o := three(t)
	w.Cut(l.Index, o.Index)
	w.run(5 * time.Second)
	if l = w.Leader(); o == l {
		t.Fatal("it leads")
	}
	if err := o.Core.Problem(); err == nil || !strings.Contains(err.Error(), l.Name+" leads") || o.Core.Elsewhere() != l.Name {
		t.Errorf("%v, %q leads%s", err, o.Core.Elsewhere(), w.state())
	}
}
