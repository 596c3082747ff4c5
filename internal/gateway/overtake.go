package gateway

import "github.com/kgate/kgate/kmutex"

// overtaken counts s if one that arrived here after it was admitted before it.
// Over all gateways nobody can count that: their clocks have no order. Nor does a
// ticket count that a lost gateway left, and whose arrival is by that one's clock.
// The caller holds the lock.
func (p *poolDriver) overtaken(s *claim) {
	switch {
	case s.grant.Request >= kmutex.FirstAdopted:
	case s.since.Before(p.newest):
		p.watch.Overtaken()
	default:
		p.newest = s.since
	}
}
