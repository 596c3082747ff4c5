//go:build !linux

package proxy

import "net"

const canSplice = false

func ackedBy(net.Conn) (acked uint64, waiting bool) { return 0, false }

func isEstablished(net.Conn) bool { return true }

func hasUnread(net.Conn) bool { return false }
