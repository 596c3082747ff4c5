//go:build !linux

package downstream

import "errors"

// disconnectWatch would need a way to learn of a connection's end without reading
// from it. Without one, a client that leaves is noticed when its body is read, or something
// is written to it.
type disconnectWatch struct{}

func newDisconnectWatch(*clients) (*disconnectWatch, error) { return new(disconnectWatch), nil }

func (*disconnectWatch) add(*Conn) error { return errors.ErrUnsupported }

func (*disconnectWatch) close() {}
