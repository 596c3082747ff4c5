//go:build !linux

package proxy

import "net"

const canSplice = false

func ackedBy(net.Conn) uint64 { return 0 }

func isEstablished(net.Conn) bool { return true }

func hasUnread(net.Conn) bool { return false }
