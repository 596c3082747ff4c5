// Package peercall asks several gateways at once.
package peercall

import "sync"

// Each calls do with each element of all and its index, as many at a time as atOnce
// says, and returns when all calls have.
func Each[T any](all []T, atOnce int, do func(int, T)) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, v := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i, v)
		})
	}
	wg.Wait()
}
