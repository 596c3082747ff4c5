//go:build !linux

package tcpstate

import "net"

func TellsAcked(net.Conn) bool { return false }

func Acked(net.Conn) (acked uint64, waiting bool) { return 0, false }

func IsDelivered(net.Conn) bool { return true }

func IsEstablished(net.Conn) bool { return true }

func IsReset(net.Conn) bool { return false }

func HasEnded(net.Conn) bool { return false }

func HasUnread(net.Conn) bool { return false }

func AwaitReset(net.Conn) error { return nil }

func LimitReceive(net.Conn, func(roundTrip float64) int) {}

func ConnectNoMore(net.Listener) {}

func HasUnaccepted(net.Listener) bool { return false }
