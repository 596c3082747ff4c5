// Package tcpstate tells what the kernel knows of a TCP connection: how far its other side
// has come, and how it has ended. Most of it is known on Linux only. Elsewhere, and of
// connections that are not TCP's, each function says what it returns.
package tcpstate

import (
	"errors"
	"io"
)

// CloseWrite closes the sending side of w, if it can be closed alone.
func CloseWrite(w io.Writer) error {
	if half, ok := w.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
