package proxy

import (
	"math"
	"net/http"
)

// maxHeads bounds what the heads of all requests that wait may take. What clients have sent does
// not: over HTTP/2, a byte can refer to a field of kilobytes, and each request has its own copy.
// Until the garbage is collected, the process may take twice as much.
const maxHeads = 32 << 20

// takeHead counts the head of a request that may have to wait. If there is no room for it, the
// request is crowded: it gets what it can have at once. Inlined, it would make the stack larger on
// which the caller then waits (TestWaiterMemory).
//
//go:noinline
func (v *visit) takeHead(r *http.Request) {
	v.head = headSize(r)
	v.crowded = v.snapshot.heads.Add(int64(v.head)) > maxHeads
}

// giveHead ends what takeHead began. It may be called again.
func (v *visit) giveHead() {
	v.snapshot.heads.Add(-int64(v.head))
	v.head = 0
}

// headSize returns what the head of a request takes in memory, about.
func headSize(r *http.Request) int32 {
	const each = 100 // of a field, beside its bytes: entries of a map and a slice
	n := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += each + len(v)
		}
	}
	return int32(min(n, math.MaxInt32))
}
