package membership

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/kmutex"
)

// secureLayer dials with a gateway's certificate.
type secureLayer struct {
	net.Listener
	config *tls.Config
}

func (l secureLayer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := tls.Dialer{Config: l.config}
	return d.DialContext(ctx, "tcp", addr)
}

// TestSpeaksForItselfOverTLS: over real connections with real certificates, only the
// gateway that a certificate is for can speak in its own name.
func TestSpeaksForItselfOverTLS(t *testing.T) {
	var n network
	g := n.start(t, "a", config{expect: 1})
	g.ready()
	ring, err := clusterkey.Parse([]byte(clusterkey.New()))
	if err != nil {
		t.Fatal(err)
	}
	as := func(name string) *tls.Config {
		conf, err := ring.TLS(name)
		if err != nil {
			t.Fatal(err)
		}
		conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, conf.RootCAs
		conf.InsecureSkipVerify = true // as a client: the name is checked above it
		return conf
	}
	transport := func(l net.Listener, name string) (*raftStream, *raft.NetworkTransport) {
		s := newRaftStream(secureLayer{l, as(name)}, func() string { return "c" },
			func(net.Conn, string, string) error { return nil }, time.Second, slog.New(slog.DiscardHandler))
		trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s, MaxPool: 0, MaxRPCsInFlight: 1, Timeout: 2 * time.Second, Logger: hclog.NewNullLogger(),
		})
		t.Cleanup(func() { _ = trans.Close() })
		return s, trans
	}
	port := tls.NewListener(listen(t, ""), as("a"))
	s, heard := transport(port, "a")
	s.guard = g.guard.guard
	s.open()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case rpc := <-heard.Consumer():
				rpc.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)
			case <-done:
				return
			}
		}
	}()
	target := address(port.Addr().String(), "a/1")
	for _, c := range []struct {
		certificate, speaksAs string
		ok                    bool
	}{{"b", "b/1", true}, {"c", "b/1", false}, {"b", "c/1", false}, {"c", "c/1", true}} {
		_, evil := transport(listen(t, ""), c.certificate)
		var answer raft.RequestPreVoteResponse
		err := evil.RequestPreVote("a/1", target, &raft.RequestPreVoteRequest{RPCHeader: asServer(c.speaksAs, "x:1"), Term: g.raft.CurrentTerm()}, &answer)
		if answer.Granted != c.ok || (err == nil) != c.ok {
			t.Errorf("with the certificate of %s in the name of %s: answered %t, %v", c.certificate, c.speaksAs, answer.Granted, err)
		}
	}
}

// TestForgedAddresses: who can forge what gossip says of addresses stops nobody who is in.
func TestForgedAddresses(t *testing.T) {
	var n network
	const lease = 2 * time.Second
	three := n.leased(t, lease, nil)
	leader := leaderOf(t, three)
	before := make(map[*gateway]kmutex.Node)
	for _, g := range three {
		before[g] = g.stands().Node
	}
	n.forged.Store(true)
	// Connections that are open would do for long.
	for i, a := range three {
		for _, b := range three[i+1:] {
			n.block(a, b)
		}
	}
	n.heal()
	for deadline := time.Now().Add(2 * lease); time.Now().Before(deadline); time.Sleep(lease / 20) {
		for _, g := range three {
			if s := g.Standing(); !s.Valid(time.Now()) || s.Node != before[g] {
				t.Fatalf("%s has lost its lease", g.name)
			}
		}
	}
	if follower := without(three, leader)[0]; follower.DefinePool(t.Context(), Pool{Name: "p", K: 3, Binding: admission.BindingLate}) != nil {
		t.Errorf("%s gets no pool agreed on", follower.name)
	}
}

// TestNamesForPeople: who has a name that a terminal would obey is not let in.
func TestNamesForPeople(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		ok         bool
	}{{"gw-2", "10.0.0.2:7080", true}, {"gw 2 ö", "10.0.0.2:7080", true}, {"gw\x1b[2J", "10.0.0.2:7080", false}, {"gw-2", "a\n:7080", false}} {
		r := &reconciler{raftNode: &raftNode{storage: &storage{}}}
		p := serfring.Member{Name: c.name, PeerAddr: c.addr, Boot: "b"}
		if got := r.acceptable(p, identity{Name: c.name, Boot: "b", Server: c.name + "/b"}); got != c.ok {
			t.Errorf("%q at %q: %t", c.name, c.addr, got)
		}
	}
}
