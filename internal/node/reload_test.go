package node

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/clusterkey"
)

// TestSetPeerTLSAllOrNothing: where one of the new keys and certificates cannot be used,
// the others are not used, either.
func TestSetPeerTLSAllOrNothing(t *testing.T) {
	cfg := alone(t)
	ring, err := clusterkey.Parse([]byte(clusterkey.New()))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Peers.Links.TLS, err = ring.TLS(cfg.Name); err != nil {
		t.Fatal(err)
	}
	cfg.Peers.Gossip.Keys = ring.Gossip()
	n := start(t, cfg)
	other := [][]byte{bytes.Repeat([]byte{7}, 32)}
	if err := n.SetPeerTLS(&tls.Config{}, other); err == nil {
		t.Fatal("took a configuration without certificates")
	}
	if err := n.SetPeerTLS(cfg.Peers.Links.TLS, [][]byte{{1}}); err == nil {
		t.Fatal("took a key of one byte")
	}
	// Who has the old key still hears the gateway.
	probe, err := serfring.Start(serfring.Config{
		Name: "probe", Boot: newBoot(), Version: "test", PeerAddr: "127.0.0.1:1", Bind: "127.0.0.1:0",
		Advertise: "127.0.0.1", Join: []string{n.GossipAddr()}, Keys: cfg.Peers.Gossip.Keys,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	}()
	for begun := time.Now(); len(probe.Members()) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("the old key is no longer good: %v", probe.Problem())
		}
	}
}
