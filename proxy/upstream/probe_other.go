//go:build !linux

package upstream

import "net"

// probe would look at a connection.
type probe struct{}

func (*probe) of(net.Conn) {}

// waits would report whether some of what was written may not have reached the server's system.
func (*probe) waits() bool { return false }
