package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
)

// readToken reads the token that changes over the admin address need; "" when
// there is none.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("node.admin_token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	const least = 16
	if len(token) < least {
		return "", fmt.Errorf("node.admin_token_file: %s holds %d characters, a token has at least %d: make one with `kgate keygen --token`", file, len(token), least)
	}
	return token, nil
}

// warnOfOpenPorts says what cluster.insecure leaves open.
func (n *node) warnOfOpenPorts() {
	if !n.cfg.Cluster.Insecure || n.trust.secure != nil {
		return
	}
	peer, gossip, _ := n.cfg.ForPeers()
	n.log.Warn("cluster.insecure: whoever reaches these addresses can read and change k, take slots and speak as a gateway",
		slog.String("peer", peer), slog.String("gossip", gossip), slog.String("remedy", "make a key with kgate keygen and name it with cluster.key_file"))
}

// warnOfOpenSecrets tells of files with secrets that other users of this machine
// can read. Their group may: that is how services are handed what root owns.
func (n *node) warnOfOpenSecrets() {
	c := n.cfg
	for _, f := range []struct{ key, path string }{
		{"node.admin_token_file", c.Node.AdminTokenFile},
		{"cluster.key_file", c.Cluster.KeyFile},
		{"cluster.gossip_key_file", c.Cluster.GossipKeyFile},
		{"cluster.tls.key", c.Cluster.TLS.Key},
		{"listen.tls.key", c.Listen.TLS.Key},
	} {
		if f.path == "" || runtime.GOOS == "windows" {
			continue
		}
		info, err := os.Stat(f.path)
		if err != nil {
			continue // whoever reads it says so
		}
		if mode := info.Mode().Perm(); mode&0o027 != 0 {
			n.log.Warn("a file with a secret is open to other users of this machine: chmod 600 is enough",
				slog.String("key", f.key), slog.String("file", f.path), slog.String("mode", fmt.Sprintf("%04o", mode)))
		}
	}
}
