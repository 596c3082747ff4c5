package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dialSmall connects as over a network: on loopback a system says only every 64 KiB that
// it has room again.
func dialSmall(t *testing.T, addr string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10)
			if err == nil {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1400)
			}
		}); e != nil {
			return e
		}
		return err
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(4 * patience))
	return conn
}

// TestMinDownloadOnTheWire: over each protocol a client that reads steadily, but too
// slowly, loses its slot, and one that is fast enough keeps it, whatever the buffers
// between have taken in.
func TestMinDownloadOnTheWire(t *testing.T) {
	needDisconnectWatch(t) // what needs the kernel, too
	const window = 2 * time.Second
	for name, length := range map[string]string{"copied": "", "spliced": strconv.Itoa(1 << 40)} {
		for _, fast := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fast %v", name, fast), func(t *testing.T) {
				t.Parallel()
				var logged safeBuffer
				g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if length != "" {
						w.Header().Set("Content-Length", length)
					}
					_, _ = io.Copy(w, endless{})
				}), func(c *Config) {
					c.Pools[0].HoldIdle, c.Pools[0].MinDownload = window, 8<<20
					if fast {
						c.Pools[0].MinDownload = 100
					}
				}, logged.into)
				c := dialSmall(t, g.addr)
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				// It reads 400 KB a second at most.
				buf := make([]byte, 2<<10)
				var err error
				for began := time.Now(); err == nil && len(g.records.done) == 0 && (!fast || time.Since(began) < 3*window); time.Sleep(5 * time.Millisecond) {
					_, err = c.Read(buf)
				}
				if fast {
					if err != nil || g.sem.now() != 1 {
						t.Errorf("%v, %d slots are held: %s", err, g.sem.now(), logged.String())
					}
					return
				}
				g.sem.await(0, 0)
				if rec := g.records.next(t); !rec.Aborted || !strings.Contains(logged.String(), "hold.min_download is not reached") {
					t.Errorf("%v, record %+v: %s", err, rec, logged.String())
				}
			})
		}
	}
}
