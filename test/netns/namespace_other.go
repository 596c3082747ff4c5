//go:build !linux

package netns

import (
	"errors"
	"os"
)

const namespaceDir = ""

func inside(string, func() error) error { return errors.ErrUnsupported }

func openTUN(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }
