//go:build !linux

package tcpstate

import "net"

func Acked(net.Conn) (acked uint64, waiting bool) { return 0, false }

func IsDelivered(net.Conn) bool { return true }

func IsEstablished(net.Conn) bool { return true }

func HasUnread(net.Conn) bool { return false }

func AwaitReset(net.Conn) error { return nil }

func LimitReceive(net.Conn, func(roundTrip float64) int) {}
