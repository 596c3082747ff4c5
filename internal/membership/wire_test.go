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

	"github.com/kgate/kgate/internal/clusterkey"
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
