//go:build !linux

package proxy

import "net"

// ackedBy would tell how many bytes the other side has acknowledged. Here only what
// is written counts as moved.
func ackedBy(net.Conn) uint64 { return 0 }
