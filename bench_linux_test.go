package kgate

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkAcquire measures a slot that is free here: Acquire and Release. On a machine that does
// other work, too, cpu-ns/op says more than ns/op.
func BenchmarkAcquire(b *testing.B) {
	node, err := Start(b.Context(), Config{Pools: []Pool{{Name: "p", K: 8}}, Peers: Peers{Listen: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	if err := node.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		slot, err := node.Acquire(b.Context(), "p")
		if err != nil {
			b.Fatal(err)
		}
		slot.Release()
	}
	b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkWaiting measures what an Acquire takes that waits: heap and stack, the caller's goroutine
// included.
func BenchmarkWaiting(b *testing.B) {
	const waiters = 10_000
	node, err := Start(b.Context(), Config{Pools: []Pool{{Name: "p", K: 1, QueueLimit: waiters}}, Peers: Peers{Listen: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	held, err := node.Acquire(b.Context(), "p")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		before := inUse()
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() { _, _ = node.Acquire(ctx, "p") })
		}
		for node.Stats("p").Waiting < waiters {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric((inUse()-before)/waiters, "B/waiter")
		cancel()
		all.Wait()
	}
	held.Release()
}

// inUse is the heap and the stacks of this process, in bytes.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
