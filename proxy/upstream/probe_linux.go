package upstream

import "golang.org/x/sys/unix"

// waits reports whether some of what was written may not have reached the server's system. It
// costs less than tcpstate.IsDelivered, which knows of connections that have ended.
func (p *probe) waits() bool {
	if p.raw == nil {
		return false // nor can tcpstate tell
	}
	if p.count == nil {
		p.count = p.queued
	}
	p.unacked = 1
	return p.raw.Control(p.count) != nil || p.unacked > 0
}

// queued is what probe.count does.
func (p *probe) queued(fd uintptr) { p.unacked, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }
