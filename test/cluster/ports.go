package cluster

import (
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Ports that outlive a process lie below the range from which the system takes
// ports for outgoing connections, so that none of those is in the way when the
// process comes back.
const firstPort, lastPort = 20_000, 32_000

var ports = struct {
	mu   sync.Mutex
	next int
}{next: os.Getpid() * 100 % (lastPort - firstPort)} // tests of other packages may run, too

// ReservePort returns an address on loopback that is free for TCP and UDP and is
// not returned again.
func ReservePort(tb testing.TB) string {
	tb.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range lastPort - firstPort {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+ports.next))
		ports.next = (ports.next + 1) % (lastPort - firstPort)
		if free(addr) {
			return addr
		}
	}
	tb.Fatal("no port is free")
	return ""
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return u.Close() == nil
}
