//go:build !linux

package cluster

import "net"

// closedByPeer cannot tell here: a request counts until its handler has noticed.
func closedByPeer(conns ...net.Conn) []bool { return make([]bool, len(conns)) }
