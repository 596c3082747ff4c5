package proxy

import (
	"math"

	"github.com/kgate/kgate/proxy/http1"
)

// What the heads of all requests that wait may take has a bound (Edge.WaitingHeaderBytes). What clients
// have sent has none: over HTTP/2, a byte can refer to a field of kilobytes, and each request has its
// own copy. Until the garbage is collected, the process may take twice as much.

// takeHead counts the head of a request that may have to wait. If there is no room for it, the
// request is crowded: it gets what it can have at once. Inlined, it would make the stack larger on
// which the caller then waits (TestWaiterStack).
//
//go:noinline
func (v *visit) takeHead(r *http1.Request) {
	v.head = headSize(r)
	v.crowded = v.snapshot.heads.Add(int64(v.head)) > v.snapshot.cfg.Edge.WaitingHeaderBytes
}

// giveHead ends what takeHead began. It may be called again.
func (v *visit) giveHead() {
	v.snapshot.heads.Add(-int64(v.head))
	v.head = 0
}

// headSize returns what the head of a request takes in memory, about.
func headSize(r *http1.Request) int32 {
	const each = 48 // of a field, beside its bytes
	n := len(r.Target) + len(r.Host) + r.Ahead
	for i := range r.Fields {
		n += each + len(r.Fields[i].Name) + len(r.Fields[i].Value)
	}
	return int32(min(n, math.MaxInt32))
}
