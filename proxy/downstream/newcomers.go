package downstream

import (
	"cmp"
	"container/heap"
	"net"
	"net/netip"
)

// newcomers are the connections that have sent no request, or a part of one, by the address that
// they come from. Its zero value has none. limiter.mu guards it.
type newcomers struct {
	origins map[netip.Addr]*origin
	most    origins
}

// origin is an address with newcomers.
type origin struct {
	addr  netip.Addr
	conns line
	index int // in newcomers.most
}

// add takes in e, which is the youngest.
func (n *newcomers) add(e *entry) {
	o := n.origins[e.from]
	if o == nil {
		o = &origin{addr: e.from}
		if n.origins == nil {
			n.origins = make(map[netip.Addr]*origin)
		}
		n.origins[e.from] = o
		o.conns.add(e)
		heap.Push(&n.most, o)
		return
	}
	o.conns.add(e)
	heap.Fix(&n.most, o.index)
}

func (n *newcomers) remove(e *entry) {
	o := n.origins[e.from]
	if o.conns.remove(e); o.conns.n > 0 {
		heap.Fix(&n.most, o.index)
		return
	}
	heap.Remove(&n.most, o.index)
	delete(n.origins, e.from)
}

// first returns the oldest one of the address that has most, and whether that has several; nil:
// there is none.
func (n *newcomers) first() (first *entry, several bool) {
	if len(n.most) == 0 {
		return nil, false
	}
	return n.most[0].conns.first, n.most[0].conns.n > 1
}

// origins is a heap: the address with most newcomers is first, and of several the one with the
// oldest.
type origins []*origin

var _ heap.Interface = (*origins)(nil)

func (h origins) Len() int { return len(h) }

func (h origins) Less(i, j int) bool {
	if h[i].conns.n == 0 || h[j].conns.n == 0 { // the origin that is about to go
		return h[i].conns.n > h[j].conns.n
	}
	return cmp.Or(h[j].conns.n-h[i].conns.n, h[i].conns.first.since.Compare(h[j].conns.first.since)) < 0
}

func (h origins) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *origins) Push(o any) {
	o.(*origin).index = len(*h)
	*h = append(*h, o.(*origin))
}

// Pop implements heap.Interface.
func (h *origins) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}

// originOf returns the address that a connection comes from. Who has one of IPv6 can choose from
// a whole /64, which counts as one.
func originOf(conn net.Conn) netip.Addr {
	addr := addrOf(conn.RemoteAddr())
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			addr = p.Addr()
		}
	}
	return addr
}
