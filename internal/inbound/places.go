// Package inbound bounds the use of a port that strangers can reach: [Places] limits how many sources
// hold something at the same time.
package inbound

import (
	"net"
	"sync"
)

// Places is a bounded number of places, in all and for each source, so that one source cannot take all
// of them. Its methods are safe for concurrent use.
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
