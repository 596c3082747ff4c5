package downstream

import (
	"maps"
	"slices"
	"sync"
)

// clients holds the connections of a server from Accept to their ends, by numbers that are used
// once. It is safe for concurrent use.
type clients struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*Conn
}

func newClients() *clients { return &clients{all: make(map[uint64]*Conn)} }

// add gives c its number.
func (t *clients) add(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	c.number = t.last
	t.all[c.number] = c
}

// remove forgets c. It may be called again.
func (t *clients) remove(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, c.number)
}

// get returns the connection of a number; nil: it has ended.
func (t *clients) get(number uint64) *Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[number]
}

// each calls do for the connections that there are.
func (t *clients) each(do func(*Conn)) {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.all))
	t.mu.Unlock()
	for _, c := range all {
		do(c)
	}
}
