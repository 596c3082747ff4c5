// Package inbound has what a port that strangers can reach needs: Places bound how many have
// something at the same time.
package inbound

import (
	"net"
	"sync"
)

// Places are handed out until there are no more, in all and to each source, so that one
// source cannot take those of all others. Its methods may be called by any number
// of goroutines.
type Places struct {
	total, each int

	mu   sync.Mutex
	all  int
	held map[string]int
}

// NewPlaces returns total places; one source may hold at most each of them.
func NewPlaces(total, each int) *Places {
	return &Places{total: total, each: each, held: make(map[string]int)}
}

// Take reports whether the source has a place now; then it must give it back.
func (p *Places) Take(source string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.total || p.held[source] >= p.each {
		return false
	}
	p.all++
	p.held[source]++
	return true
}

// GiveBack ends what Take began, once.
func (p *Places) GiveBack(source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.held[source]--; p.held[source] == 0 {
		delete(p.held, source)
	}
}

// Host names the source of a connection: the other end's address without its port.
func Host(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}
