package node

import (
	"crypto/tls"
	"errors"
	"log/slog"
)

// Reload applies the Pools and Proxy of cfg to requests that come from now on. Waiting requests keep
// their places, requests in flight their connections. The rest of cfg does not count. On an error
// nothing has changed.
func (n *Node) Reload(cfg Config) error {
	n.reload.Lock()
	defer n.reload.Unlock()
	clients := n.proxyConfig(cfg)
	err := clients.Validate()
	for i := range cfg.Pools {
		err = errors.Join(err, n.pools.holdFits(&cfg.Pools[i]))
	}
	if err != nil {
		return err
	}
	for _, p := range cfg.Pools {
		n.cfg.Metrics.AddPool(p.Name)
	}
	added := n.pools.unknown(cfg.Pools)
	if err := n.proxy.Reload(clients); err != nil {
		return err
	}
	n.agreeOnUpstreams(n.peers.cluster.View())
	n.pools.configure(cfg.Pools)
	if len(added) > 0 {
		n.wg.Go(func() {
			if err := n.pools.define(n.ctx, added); err != nil {
				n.cfg.Logger.Error("the cluster refused a new pool", slog.Any("error", err))
			}
		})
	}
	return nil
}

// SetPeerTLS sets the certificates of new connections, and ends connections that they no longer allow.
// On an error nothing has changed.
func (n *Node) SetPeerTLS(cfg *tls.Config) error { return n.peers.links.SetTLS(cfg) }
