package kgate

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/proxy"
)

// errConfig is wrapped by every error about a Config.
var errConfig = errors.New("kgate: bad configuration")

// reloaded returns c with what a node that was started with before cannot change.
func (c Config) reloaded(before Config) (Config, error) {
	c.Name, c.Version, c.Witness, c.Peers, c.Process = before.Name, before.Version, before.Witness, before.Peers, before.Process
	return c.withDefaults()
}

// withDefaults fills in what c leaves out, from this host where needed, and checks it.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("kgate: cannot read the host name: %w; set Config.Name", err)
		}
		c.Name = name
	}
	c.Version = cmp.Or(c.Version, version(), "unknown")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if len(c.Routes) == 0 && len(c.Pools) == 1 && c.Pools[0].servesRequests() {
		c.Routes = []proxy.Route{{Pool: c.Pools[0].Name}}
	}
	errs := c.check()
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	var err error
	c.Peers, err = c.Peers.withDefaults(c.Name)
	return c, err
}

// check returns all that is wrong with c and that this package can tell.
func (c *Config) check() (errs []error) {
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
	}
	if c.Witness && len(c.Pools) > 0 {
		wrong("a witness serves nothing: leave out Pools, or Witness")
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		if !admission.IsPoolName(p.Name) {
			wrong("%q cannot name a pool: write 1 to 64 of a-z, 0-9, hyphen, underscore and dot", p.Name)
		}
		if p.K < 1 {
			wrong("pool %q has K %d: set how many requests may be in flight at once", p.Name, p.K)
		}
		if p.RateDown < 0 || p.RateUp < 0 || p.RequestRate < 0 {
			wrong("pool %q has a negative rate: set bytes per second, or 0", p.Name)
		}
		if p.ReclaimHold && p.HoldMax <= 0 {
			wrong("pool %q has ReclaimHold without HoldMax: set both", p.Name)
		}
	}
	for _, addr := range append([]string{cmp.Or(c.Peers.Listen, hostaddr.DefaultPeer), cmp.Or(c.Peers.Gossip, hostaddr.DefaultGossip)}, c.Peers.Join...) {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			wrong("Peers has the address %q: write host:port, such as 10.0.0.2%s", addr, hostaddr.DefaultGossip)
		}
	}
	if lease := cmp.Or(c.Peers.Lease, admission.DefaultLease); lease < admission.MinLease || lease > admission.MaxLease {
		wrong("Peers.Lease is %v: set from %v to %v, such as 3*time.Second", lease, admission.MinLease, admission.MaxLease)
	}
	if c.Peers.Expect < 0 {
		wrong("Peers.Expect is %d: set how many nodes begin the cluster together, or 0", c.Peers.Expect)
	}
	return errs
}

func (p Peers) withDefaults(name string) (Peers, error) {
	if p.Key != nil {
		if p.TLS != nil || p.GossipKeys != nil {
			return p, fmt.Errorf("%w: Peers.Key takes the place of TLS and GossipKeys: set one or the other", errConfig)
		}
		var err error
		if p.TLS, p.GossipKeys, err = fromKey(p.Key, name); err != nil {
			return p, err
		}
		p.Key = nil
	}
	guarded := p.TLS != nil && p.GossipKeys != nil
	listen, gossip := hostaddr.DefaultPeer, hostaddr.DefaultGossip
	if !guarded && !p.Insecure && len(p.Join) == 0 && p.Expect <= 1 {
		listen, gossip = hostaddr.Alone, hostaddr.Alone
	}
	p.Listen, p.Gossip = cmp.Or(p.Listen, listen), cmp.Or(p.Gossip, gossip)
	p.Lease = cmp.Or(p.Lease, admission.DefaultLease)
	p.Replicas = max(0, cmp.Or(p.Replicas, admission.DefaultReplicas))
	if len(p.Join) == 0 {
		p.Expect = max(p.Expect, 1)
	}
	open := !hostaddr.BoundTo(p.Listen).IsLoopback() || !hostaddr.BoundTo(p.Gossip).IsLoopback()
	if open && !guarded && !p.Insecure {
		return p, fmt.Errorf("%w: other machines can reach %s or %s, and nothing protects them: set Peers.Key, as `kgate keygen` makes it, or TLS and GossipKeys; or Insecure, in a network that you trust", errConfig, p.Listen, p.Gossip)
	}
	if p.Advertise.IsValid() {
		return p, nil
	}
	var err error
	if p.Advertise, err = hostaddr.Advertised(net.InterfaceAddrs, p.Listen, p.Gossip); err != nil {
		return p, fmt.Errorf("kgate: cannot read this host's addresses: %w; set Peers.Advertise", err)
	}
	return p, nil
}

// fromKey derives TLS and gossip keys from a cluster key, for the node of this name.
func fromKey(key []byte, name string) (secure *tls.Config, gossip [][]byte, err error) {
	ring, err := clusterkey.Parse(key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: Peers.Key: %w; set the content of a file that `kgate keygen` has made", errConfig, err)
	}
	secure, err = ring.TLS(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: Peers.Key: %w", errConfig, err)
	}
	return secure, ring.Gossip(), nil
}

// servesRequests reports whether the pool has an upstream that serves HTTP requests.
func (p *Pool) servesRequests() bool {
	return slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u == nil || u.Scheme != "tcp" })
}
