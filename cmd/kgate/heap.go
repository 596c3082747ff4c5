package main

import (
	"os"
	"runtime"
)

// heapFloor is memory that is reserved and never touched, so it is address space
// and not RAM. The garbage collector lets the heap double before it runs; a
// gateway's own heap is a few MiB, so without a floor it runs again and again
// under load. With it, garbage adds up to at most this much more between
// two runs. See docs/adr/0009-a-heap-floor.md for what it saves.
var heapFloor []byte

const heapFloorSize = 32 << 20

// raiseHeapFloor does nothing when the operator has tuned the collector.
func raiseHeapFloor() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		heapFloor = make([]byte, heapFloorSize)
		runtime.KeepAlive(heapFloor)
	}
}
