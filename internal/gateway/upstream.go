package gateway

import (
	"slices"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
)

// Where upstreams have a k of their own, each token stands for a place at one of them. A
// gateway that cannot reach an upstream bars its tokens: they go to gateways that can.

// bar is [pools.Bar] for one pool.
func (p *poolDriver) bar(upstreams []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.barred = upstreams; !p.alive() || p.spec.Classes == nil {
		return // follow tells the machine
	}
	p.barTokens()
	if p.outOfReach {
		p.refuse(admission.UpstreamDown)
	}
	p.settle()
}

// isBarred reports whether a class cannot be used here.
func (p *poolDriver) isBarred(c membership.Class) bool { return slices.Contains(p.barred, c.Upstream) }

// barTokens bars the tokens that cannot be used here.
func (p *poolDriver) barTokens() {
	var set kmutex.TokenSet
	p.beyond, p.outOfReach = 0, p.spec.Classes != nil
	for _, c := range p.spec.Classes {
		if p.isBarred(c) {
			set.AddAll(c.Tokens)
			p.beyond += c.K
		} else if c.K > 0 {
			p.outOfReach = false
		}
	}
	p.apply(p.core.Bar(p.clock(), set))
}

// UpstreamStatus is an upstream with a k of its own, as this gateway sees it.
type UpstreamStatus struct {
	URL string
	// K is how many requests it may get from all gateways together, InUse how many slots of
	// it are in use here.
	K, InUse int
}

// upstreams returns those that have a k of their own. The caller holds the lock.
func (p *poolDriver) upstreams() []UpstreamStatus {
	if p.spec.Classes == nil {
		return nil
	}
	inUse := make(map[string]int)
	for _, s := range p.slots {
		if s.state == slotGranted {
			inUse[p.spec.Upstream(s.grant.Token)]++
		}
	}
	var all []UpstreamStatus
	for _, c := range p.spec.Classes {
		all = append(all, UpstreamStatus{URL: c.Upstream, K: c.K, InUse: inUse[c.Upstream]})
	}
	return all
}
