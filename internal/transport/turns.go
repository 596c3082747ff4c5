package transport

import (
	"sync"
)

// inTurn calls functions one after the other. The zero value is ready.
type inTurn struct {
	mu      sync.Mutex
	waiting []func()
	running bool
}

// add has f called when those before it have returned.
func (i *inTurn) add(f func(), begin func(func())) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiting = append(i.waiting, f)
	if !i.running {
		i.running = true
		begin(i.run)
	}
}

func (i *inTurn) run() {
	for {
		i.mu.Lock()
		if len(i.waiting) == 0 {
			i.running = false
			i.mu.Unlock()
			return
		}
		f := i.waiting[0]
		i.waiting = i.waiting[1:]
		i.mu.Unlock()
		f()
	}
}
