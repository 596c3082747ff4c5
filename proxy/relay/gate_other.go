//go:build !unix

package relay

const gatesCalls = false

func (g *Gate) send(uintptr) bool { return true }
