//go:build !unix

package journal

import (
	"errors"
	"io/fs"
)

// stat fails: modes tell nothing here.
func stat(string) (fs.FileInfo, int, error) { return nil, 0, errors.ErrUnsupported }
