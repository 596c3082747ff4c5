//go:build !unix

package upstream

import "net"

// probe would look at a connection without reading from it. On this
// system the request that uses a connection finds out that the server has closed it.
type probe struct{}

func (*probe) of(net.Conn) {}

func (*probe) readable() bool { return false }
