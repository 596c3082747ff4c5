//go:build !linux

package relay

import "errors"

// splice: only Linux is known to have it.
func (s *Stream) splice() error { return errors.ErrUnsupported }
