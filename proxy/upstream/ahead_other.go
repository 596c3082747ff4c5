//go:build !linux

package upstream

// limitAhead: the round trip is not known.
func (c *conn) limitAhead(int64) {}
