package config

import (
	"strings"
	"testing"
)

// TestGuard has the gateways' own ports open to other machines only for those
// who have the cluster's key, or by a decision that the file shows.
func TestGuard(t *testing.T) {
	const (
		key = "key_file: cluster.key"
		tls = "gossip_key_file: gossip.key, tls: {ca: ca.pem, cert: c.pem, key: k.pem}"
	)
	for _, c := range []struct {
		name, listen, cluster string
		peer, gossip          string // where it listens
		wrong                 string
	}{
		{"alone", "", "", "127.0.0.1:0", "127.0.0.1:0", ""},
		{"alone, with the defaults written out", "peer: ':7080', gossip: ':7946'", "", "127.0.0.1:0", "127.0.0.1:0", ""},
		{"alone, for others to join", "", key, ":7080", ":7946", ""},
		{"alone, on an address of its own", "peer: 10.0.0.1:7080", "", "", "", "listen.peer"},
		{"alone, gossip on an address of its own", "gossip: 10.0.0.1:7946", "", "", "", "listen.gossip"},
		{"alone, on purpose in the clear", "", "insecure: true", ":7080", ":7946", ""},
		{"on loopback", "peer: 127.0.0.1:7080, gossip: 'localhost:7946'", "join: ['127.0.0.1:7947']", "127.0.0.1:7080", "localhost:7946", ""},
		{"joins", "", "join: ['10.0.0.2:7946']", "", "", "listen.peer"},
		{"founds with others", "", "bootstrap_expect: 3", "", "", "listen.peer"},
		{"joins, gossip open", "peer: 127.0.0.1:7080", "join: ['10.0.0.2:7946']", "", "", "listen.gossip"},
		{"a gossip key alone", "", "join: ['10.0.0.2:7946'], gossip_key_file: gossip.key", "", "", "listen.peer"},
		{"the cluster's key", "", "join: ['10.0.0.2:7946'], " + key, ":7080", ":7946", ""},
		{"certificates", "", "join: ['10.0.0.2:7946'], " + tls, ":7080", ":7946", ""},
		{"in the clear", "", "join: ['10.0.0.2:7946'], insecure: true", ":7080", ":7946", ""},
	} {
		cfg, err := Parse("kgate.yaml", []byte(minimal+"listen: {"+c.listen+"}\ncluster: {"+c.cluster+"}\n"))
		switch {
		case c.wrong != "":
			if err == nil || len(Lines(err)) != 1 || !strings.Contains(err.Error(), c.wrong+": ") || !strings.Contains(err.Error(), "kgate keygen") {
				t.Errorf("%s: %v, want one error about %s", c.name, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			if peer, gossip, _ := cfg.ForPeers(); peer != c.peer || gossip != c.gossip {
				t.Errorf("%s: peer %s, gossip %s", c.name, peer, gossip)
			}
		}
	}
}
