package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/kmutex"
)

// secureLayer has TLS on both ends of its connections.
type secureLayer struct {
	StreamLayer
	config *tls.Config
}

func (l secureLayer) Accept() (net.Conn, error) {
	conn, err := l.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(conn, l.config), nil
}

func (l secureLayer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := l.StreamLayer.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, l.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// clusterKey is a cluster's key; empty: there is no TLS.
type clusterKey string

// secure gives a layer the certificate of a gateway.
func (k clusterKey) secure(t testing.TB, l StreamLayer, name string) StreamLayer {
	t.Helper()
	if k == "" {
		return l
	}
	ring, err := clusterkey.Parse([]byte(k))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := ring.TLS(name)
	if err != nil {
		t.Fatal(err)
	}
	conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, conf.RootCAs
	conf.InsecureSkipVerify = true // as a client: the name is checked above it
	return secureLayer{l, conf}
}

// TestSpeaksForItselfOverTLS: over real connections with real certificates, only the
// gateway that a certificate is for can speak in its own name.
func TestSpeaksForItselfOverTLS(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		key := clusterKey(clusterkey.New())
		transport := func(l net.Listener, name string) (*raftStream, *raft.NetworkTransport) {
			s := newRaftStream(key.secure(t, layer{l, &n, name, func(addr string) string { return addr }}, name), func() string { return "c" },
				func(net.Conn, string, string) error { return nil }, time.Second, slog.New(slog.DiscardHandler))
			trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
				Stream: s, MaxPool: 0, MaxRPCsInFlight: 1, Timeout: 2 * time.Second, Logger: hclog.NewNullLogger(),
			})
			t.Cleanup(func() { _ = trans.Close() })
			return s, trans
		}
		port := n.listen(t, "")
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
			_, evil := transport(n.listen(t, ""), c.certificate)
			var answer raft.RequestPreVoteResponse
			err := evil.RequestPreVote("a/1", target, &raft.RequestPreVoteRequest{RPCHeader: asServer(c.speaksAs, "x:1"), Term: g.raft.CurrentTerm()}, &answer)
			if answer.Granted != c.ok || (err == nil) != c.ok {
				t.Errorf("with the certificate of %s in the name of %s: answered %t, %v", c.certificate, c.speaksAs, answer.Granted, err)
			}
		}
	})
}

// TestUnknownLeaderIsListenedTo: a gateway comes back, and its own log does not name the leader as a
// raft server, or nobody who is left. It is brought up to date all the same.
func TestUnknownLeaderIsListenedTo(t *testing.T) {
	start := func(t *testing.T) (n *network, three []*gateway) {
		n = &network{key: clusterKey(clusterkey.New())}
		root := t.TempDir()
		three = n.three(t, func(name string) string { return filepath.Join(root, name) })
		settle(t, three)
		return n, three
	}
	returns := func(t *testing.T, n *network, away, leads *gateway, left []*gateway) {
		t.Helper()
		id := raft.ServerID(leads.stats().Server)
		until(t, leads.name+" leads", func() bool {
			now := leaderOf(t, left)
			if voting, _ := now.Voting(); now != leads && slices.Contains(voting, leads.name) {
				now.ops.Lock()
				defer now.ops.Unlock()
				_ = now.raft.LeadershipTransferToServer(id, address(leads.peerAddr, string(id))).Error() // or it is tried again
			}
			return now == leads
		})
		back := n.start(t, away.name, config{expect: 3, dir: away.dir, join: []string{leads.gossip}})
		back.ready()
	}
	t.Run("it came meanwhile", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			n, three := start(t)
			away := followerOf(t, three)
			away.leave()
			left := without(three, away)
			d := n.start(t, "d", config{expect: 1, joining: true, join: []string{left[0].gossip}})
			left = append(left, d)
			settle(t, left)
			returns(t, n, away, d, left)
		})
	})
	t.Run("nobody else is left", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			n, three := start(t)
			away := followerOf(t, three)
			away.leave()
			left := without(three, away)
			var came []*gateway
			for _, name := range []string{"d", "e"} {
				came = append(came, n.start(t, name, config{expect: 1, joining: true, join: []string{left[0].gossip}}))
			}
			settle(t, append(slices.Clone(left), came...))
			for _, g := range left {
				g.leave()
			}
			settle(t, came)
			back := n.start(t, away.name, config{expect: 3, dir: away.dir, join: []string{came[0].gossip}})
			back.ready()
		})
	})
	t.Run("its removal was not agreed on", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			n, three := start(t)
			away := leaderOf(t, three)
			left := without(three, away)
			away.kill()
			// It ended when nobody else had its last entry yet.
			file, err := raftfile.Open(filepath.Join(away.dir, dataFile), raftfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			others := slices.DeleteFunc(slices.Clone(away.servers()), func(s raft.Server) bool { return nameOf(s.ID) == left[0].name })
			last := file.Last()
			if err := errors.Join(file.StoreLog(&raft.Log{
				Index: last.Index + 1, Term: last.Term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: others}),
			}), file.Close()); err != nil {
				t.Fatal(err)
			}
			returns(t, n, away, left[0], left)
		})
	})
}

// TestForgedAddresses: who can forge what gossip says of addresses stops nobody who is in.
func TestForgedAddresses(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
	})
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
