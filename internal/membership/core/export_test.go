package core

import "fmt"

// wakes says when what is due.
func (c *Core) wakes() string {
	return fmt.Sprint("dials ", c.peers.next-c.now, " roll ", c.roll.next(c)-c.now, " election ", c.election.next(c)-c.now, " self ", c.self.next(c)-c.now, " ask ", c.nextAsk()-c.now, " work ", c.nextWork()-c.now)
}
