package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// waiterCount is how many clients wait at a time.
const waiterCount = 5000

// BenchmarkWaiters compares what a client that waits costs kgate, and a handler on
// net/http's server that does nothing else. Some clients wait with the first request
// of their connections, others have had an answer before: net/http keeps the stack that
// it took.
func BenchmarkWaiters(b *testing.B) {
	t, filled := newTable(fmt.Sprintf("Memory: %d clients wait, HTTP/1.1 in the clear; bytes for each, after a collection", waiterCount),
		"system\trequest\theap\tstacks\theap and stacks")
	if filled {
		return
	}
	upstream := startProcess(b, "a handler on net/http's server", "upstream")
	address := strings.TrimSuffix(strings.TrimPrefix(upstream.urls[0], "http://"), "/")
	g := cluster.Start(b, cluster.Options{Gateways: 1, K: 1, Upstream: "http://" + address, MaxConnections: waiterCount + 100}).Gateways[0]
	rooms := []*waitingRoom{
		{name: upstream.name, clients: address, debug: address},
		{name: "one kgate", clients: g.HTTP, debug: g.Admin, slots: 1},
	}
	for _, request := range []string{"first", "second"} {
		for i, room := range rooms {
			each := room.measure(b, request == "second")
			t.row("%s\t%s\t%d\t%d\t%d", room.name, request, each.heap, each.stacks, each.heap+each.stacks)
			b.ReportMetric(float64(each.heap+each.stacks), "B/"+request+[]string{"-net/http", "-kgate"}[i])
		}
	}
	b.ReportMetric(0, "ns/op")
}

// waitingRoom is a process at which clients wait.
type waitingRoom struct {
	name    string
	clients string // where they connect
	debug   string // where its profiles are
	slots   int    // that have to be taken first, so that the others wait
}

// memory of a process, in bytes.
type memory struct{ heap, stacks, goroutines int64 }

// measure returns what each client costs.
func (w *waitingRoom) measure(b *testing.B, again bool) memory {
	b.Helper()
	before := w.memory(b)
	conns := make([]*waiter, waiterCount+w.slots)
	for i := range conns {
		conns[i] = dialWaiter(b, w.clients)
		if again {
			conns[i].ask(b, "/")
			conns[i].await(b)
		}
	}
	for _, c := range conns {
		c.ask(b, "/wait")
	}
	within := time.Now().Add(time.Minute)
	var with memory
	for with = w.memory(b); with.goroutines < before.goroutines+waiterCount; with = w.memory(b) {
		if time.Now().After(within) {
			b.Fatalf("%s: only %d clients wait", w.name, with.goroutines-before.goroutines)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for left := with; left.goroutines > before.goroutines+waiterCount/10; left = w.memory(b) {
		if time.Now().After(within) {
			b.Fatalf("%s: %d clients wait for ever", w.name, left.goroutines-before.goroutines)
		}
	}
	return memory{heap: (with.heap - before.heap) / waiterCount, stacks: (with.stacks - before.stacks) / waiterCount}
}

// memory has the process collect its garbage.
func (w *waitingRoom) memory(b *testing.B) memory {
	b.Helper()
	heap := w.profile(b, "heap?gc=1&debug=1")
	return memory{
		heap: number(b, heap, "# HeapInuse = "), stacks: number(b, heap, "# Stack = "),
		goroutines: number(b, w.profile(b, "goroutine?debug=1"), "goroutine profile: total "),
	}
}

func (w *waitingRoom) profile(b *testing.B, name string) string {
	b.Helper()
	res, err := http.Get("http://" + w.debug + "/debug/pprof/" + name)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res.Status, err)
	}
	return string(text)
}

// number returns the number that follows prefix in text.
func number(b *testing.B, text, prefix string) int64 {
	b.Helper()
	_, rest, _ := strings.Cut(text, prefix)
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		b.Fatalf("no number after %q: %v", prefix, err)
	}
	return n
}

// waiter is a client's connection.
type waiter struct {
	net.Conn
	answers *bufio.Reader
}

func dialWaiter(b *testing.B, address string) *waiter {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	return &waiter{conn, bufio.NewReaderSize(conn, 2<<10)}
}

func (w *waiter) ask(b *testing.B, path string) {
	b.Helper()
	if _, err := io.WriteString(w, "GET "+path+" HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
}

func (w *waiter) await(b *testing.B) {
	b.Helper()
	res, err := http.ReadResponse(w.answers, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		b.Fatal(err)
	}
}
