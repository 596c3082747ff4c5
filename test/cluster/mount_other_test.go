//go:build !linux

package cluster

import "errors"

func mount(string, int) error { return errors.ErrUnsupported }

func remountReadOnly(string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
