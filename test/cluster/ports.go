package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports that outlive a process lie below the range from which the system takes
// ports for outgoing connections, so that none of those is in the way when the
// process comes back. Tests of several packages run at once: each takes whole blocks of ports, by a
// lock that ends with its process.
const (
	firstPort = 20_000
	blocks    = 120
	blockSize = 100
)

var ports = struct {
	mu    sync.Mutex
	block int        // that was locked last
	next  int        // in it
	locks []*os.File // of this process, open as long as it runs
}{block: -1, next: blockSize}

// ReservePort returns an address on loopback that is free for TCP and UDP and is
// not returned again.
func ReservePort(tb testing.TB) string {
	tb.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for {
		if ports.next == blockSize {
			if err := lockBlock(); err != nil {
				tb.Fatal(err)
			}
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+ports.block*blockSize+ports.next))
		if ports.next++; free(addr) {
			return addr
		}
	}
}

// lockBlock takes the next block that no process has.
func lockBlock() error {
	dir := filepath.Join(os.TempDir(), "kgate-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for ports.block++; ports.block < blocks; ports.block++ {
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(ports.block)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return err
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			ports.locks, ports.next = append(ports.locks, f), 0
			return nil
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return fmt.Errorf("all %d blocks of ports are taken: other tests run", blocks)
}

func free(addr string) bool {
	// A process that is being started has this one's listeners until its own program runs.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
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
