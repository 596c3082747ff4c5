//go:build !unix

package upstream

import "net"

// probe would look at a connection without reading from it. Here a connection
// that the server has closed is found out by the request that uses it.
type probe struct{}

func (*probe) of(net.Conn) {}

func (*probe) readable() bool { return false }
