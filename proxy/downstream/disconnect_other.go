//go:build !linux

package downstream

import (
	"errors"
	"net"
)

// disconnectWatch would need a way to learn of a connection's end without reading
// from it. Without one, a client that leaves is noticed when its body is read, or something
// is written to it.
type disconnectWatch struct{}

func newDisconnectWatch() (*disconnectWatch, error) { return new(disconnectWatch), nil }

func (*disconnectWatch) add(net.Conn, leaver) (token uint64, err error) {
	return 0, errors.ErrUnsupported
}

func (*disconnectWatch) remove(uint64) {}

func (*disconnectWatch) close() {}
