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
		tls = "tls: {ca: ca.pem, cert: c.pem, key: k.pem}"
	)
	for _, c := range []struct {
		name, listen, cluster string
		peer                  string // where it listens
		wrong                 string
	}{
		{"alone", "", "", "127.0.0.1:0", ""},
		{"alone, with the defaults written out", "peer: ':7080'", "", "127.0.0.1:0", ""},
		{"alone, for others to join", "", key, ":7080", ""},
		{"alone, on an address of its own", "peer: 10.0.0.1:7080", "", "", "listen.peer"},
		{"alone, on purpose in the clear", "", "insecure: true", ":7080", ""},
		{"on loopback", "peer: 'localhost:7080'", "join: ['127.0.0.1:7081']", "localhost:7080", ""},
		{"joins", "", "join: ['10.0.0.2:7080']", "", "listen.peer"},
		{"founds with others", "", "bootstrap_expect: 3", "", "listen.peer"},
		{"the cluster's key", "", "join: ['10.0.0.2:7080'], " + key, ":7080", ""},
		{"certificates", "", "join: ['10.0.0.2:7080'], " + tls, ":7080", ""},
		{"in the clear", "", "join: ['10.0.0.2:7080'], insecure: true", ":7080", ""},
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
			if peer, _ := cfg.ForPeers(); peer != c.peer {
				t.Errorf("%s: peer %s", c.name, peer)
			}
		}
	}
}
