//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: the system has no such thing.
func dieWithParent(*syscall.SysProcAttr) {}
