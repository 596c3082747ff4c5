package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"github.com/kgate/kgate/config"
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

// gossipKey returns the key that the configuration holds or names; nil when
// gossip goes in the clear.
func gossipKey(c config.Cluster) (config.Key, error) {
	if c.GossipKeyFile == "" {
		return c.GossipKey, nil
	}
	data, err := os.ReadFile(c.GossipKeyFile)
	if err != nil {
		return nil, fmt.Errorf("cluster.gossip_key_file: %w", err)
	}
	var key config.Key
	if err := key.UnmarshalText([]byte(strings.TrimSpace(string(data)))); err != nil || len(key) != 32 {
		return nil, fmt.Errorf("cluster.gossip_key_file: %s holds no key of 32 bytes in base64: make one with `kgate keygen --gossip`", c.GossipKeyFile)
	}
	return key, nil
}

// warnOfOpenSecrets tells of files with secrets that other users of this machine
// can read. Their group may: that is how services are handed what root owns.
func (n *node) warnOfOpenSecrets() {
	c := n.cfg
	for _, f := range []struct{ key, path string }{
		{"node.admin_token_file", c.Node.AdminTokenFile},
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
