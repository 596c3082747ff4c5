//go:build !unix

package transport

import "errors"

const writesOnce = false

func writeOnce(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
