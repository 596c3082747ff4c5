package kgate

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/internal/node"
)

// reloaded returns c with what a node that was started with before cannot change.
func (c Config) reloaded(before Config) (Config, error) {
	c.Name, c.Witness, c.Peers = before.Name, before.Witness, before.Peers
	return c.withDefaults()
}

// withDefaults fills in what c leaves out, from this host where needed, and checks it.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("cannot read the host name: %w; set Config.Name", err)
		}
		c.Name = name
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	errs := c.check()
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	var err error
	c.Peers, err = c.Peers.withDefaults(c.Name)
	return c, err
}

// wrong returns a *[ConfigError].
func wrong(field, problem string, args ...any) error {
	return &ConfigError{Field: field, Problem: fmt.Sprintf(problem, args...)}
}

// check returns all that is wrong with c and that this package can tell.
func (c *Config) check() (errs []error) {
	bad := func(field, problem string, args ...any) { errs = append(errs, wrong(field, problem, args...)) }
	if !admission.IsNodeName(c.Name) {
		bad("Name", "%q: set 1 to %d bytes without control characters", c.Name, admission.MaxNodeName)
	}
	if c.Witness && len(c.Pools) > 0 {
		bad("Witness", "a witness serves nothing: leave out Pools, or Witness")
	}
	seen := make(map[string]bool)
	for i := range c.Pools {
		c.Pools[i].check(func(field, problem string, args ...any) { bad(fmt.Sprintf("Pools[%d].%s", i, field), problem, args...) })
		if name := c.Pools[i].Name; seen[name] {
			bad(fmt.Sprintf("Pools[%d].Name", i), "there are two pools %q: give each its own name", name)
		} else {
			seen[name] = true
		}
	}
	for i, addr := range c.Peers.Join {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad(fmt.Sprintf("Peers.Join[%d]", i), "the address %q: write host:port, such as 10.0.0.2%s", addr, hostaddr.DefaultPeer)
		}
	}
	if _, _, err := net.SplitHostPort(cmp.Or(c.Peers.Listen, hostaddr.DefaultPeer)); err != nil {
		bad("Peers.Listen", "the address %q: write host:port, such as %s", c.Peers.Listen, hostaddr.DefaultPeer)
	}
	if lease := cmp.Or(c.Peers.Lease, admission.DefaultLease); lease < admission.MinLease || lease > admission.MaxLease {
		bad("Peers.Lease", "it is %v: set from %v to %v, such as 3*time.Second", lease, admission.MinLease, admission.MaxLease)
	}
	if a := c.Peers.Advertise; a.IsValid() && (a.IsUnspecified() || a.IsMulticast()) {
		bad("Peers.Advertise", "nobody can reach a node at %v: set one address of this machine", a)
	}
	if c.Peers.Expect < 0 {
		bad("Peers.Expect", "it is %d: set how many nodes begin the cluster together, or 0", c.Peers.Expect)
	}
	return errs
}

func (p *Pool) check(bad func(field, problem string, args ...any)) {
	if !admission.IsPoolName(p.Name) {
		bad("Name", "%q cannot name a pool: write 1 to 64 of a-z, 0-9, hyphen, underscore and dot", p.Name)
	}
	if p.K < 1 || p.K > node.MaxK {
		bad("K", "it is %d: set how many may be in flight at once, from 1 to %d", p.K, node.MaxK)
	}
	if p.ReclaimHold && p.HoldMax <= 0 {
		bad("HoldMax", "ReclaimHold needs it: set both")
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"QueueLimit", p.QueueLimit}, {"ClientLimit", p.ClientLimit}, {"ClientInFlight", p.ClientInFlight}, {"ClientTickets", p.ClientTickets},
	} {
		if f.value < 0 {
			bad(f.name, "it is %d: set a positive number, or 0", f.value)
		}
	}
	if p.ClientHeader != "" && !httpguts.ValidHeaderFieldName(p.ClientHeader) {
		bad("ClientHeader", "%q is not the name of a header: set one such as X-Api-Key", p.ClientHeader)
	}
	for client, weight := range p.ClientWeights {
		if !(weight > 0) || math.IsInf(weight, 1) {
			bad("ClientWeights", "the weight of %q is %v: set a positive number", client, weight)
		}
	}
	if len(p.ClientWeights) > 0 && !p.Fair {
		bad("ClientWeights", "without Fair they have no effect: set both")
	}
	if p.HoldMax < 0 {
		bad("HoldMax", "it is %v: set how long, or 0 for no limit", p.HoldMax)
	}
	if p.TicketTTL != 0 && (p.TicketTTL < admission.MinTTL || p.TicketTTL > admission.MaxTTL) {
		bad("TicketTTL", "it is %v: set from %v to %v", p.TicketTTL, admission.MinTTL, admission.MaxTTL)
	}
}

func (p Peers) withDefaults(name string) (Peers, error) {
	if p.Key != nil {
		if p.TLS != nil {
			return p, wrong("Peers.Key", "it takes the place of TLS: set one or the other")
		}
		var err error
		if p.TLS, err = fromKey(p.Key, name); err != nil {
			return p, err
		}
		p.Key = nil
	}
	listen := hostaddr.DefaultPeer
	if p.TLS == nil && !p.Insecure && len(p.Join) == 0 && p.Expect <= 1 {
		listen = hostaddr.Alone
	}
	p.Listen = cmp.Or(p.Listen, listen)
	p.Lease = cmp.Or(p.Lease, admission.DefaultLease)
	if len(p.Join) == 0 {
		p.Expect = max(p.Expect, 1)
	}
	if !hostaddr.BoundTo(p.Listen).IsLoopback() && p.TLS == nil && !p.Insecure {
		return p, wrong("Peers.Key", "other machines can reach %s, and nothing protects it: set Key, as `kgate keygen` makes it, or TLS; or Insecure, in a network that you trust", p.Listen)
	}
	if p.Advertise.IsValid() {
		return p, nil
	}
	var err error
	if p.Advertise, err = hostaddr.Advertised(net.InterfaceAddrs, p.Listen); err != nil {
		return p, fmt.Errorf("cannot read this host's addresses: %w; set Peers.Advertise", err)
	}
	return p, nil
}

// fromKey derives TLS from a cluster key, for the node of this name.
func fromKey(key []byte, name string) (*tls.Config, error) {
	ring, err := clusterkey.Parse(key)
	if err != nil {
		return nil, wrong("Peers.Key", "%v; set the content of a file that `kgate keygen` has made", err)
	}
	secure, err := ring.TLS(name)
	if err != nil {
		return nil, wrong("Peers.Key", "%v", err)
	}
	return secure, nil
}
