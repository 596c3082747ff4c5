//go:build unix

package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBadAnswerToUpload: a server that reads nothing of a long body and answers badly, or
// with an upgrade that the caller declines, hears that the exchange is over before
// another one may begin.
func TestBadAnswerToUpload(t *testing.T) {
	for name, say := range map[string]string{
		"no header": "nonsense\r\n\r\n",
		"half":      "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
		"upgrade":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			said, heard := make(chan net.Conn, 1), make(chan struct{})
			s := serve(t, func(c net.Conn, br *bufio.Reader) {
				_, _ = http.ReadRequest(br)
				time.Sleep(10 * time.Millisecond) // more than the system takes is on its way
				_, _ = io.WriteString(c, say)
				said <- c
				<-heard
			})
			defer close(heard)
			c := newClient(t, s.addr)
			res, err := c.RoundTrip(request(t, "POST", strings.NewReader(strings.Repeat("x", 32<<20))), &plain{})
			if err == nil {
				_ = res.Body.Close()
			}
			server, until := <-said, time.Now().Add(time.Second)
			for !hungUp(t, server) {
				if time.Now().After(until) {
					t.Fatal("the server does not hear of it")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// hungUp reports whether the peer has ended both sides of a connection, without reading
// from it.
func hungUp(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fds := make([]unix.PollFd, 1) // POLLHUP needs not be asked for
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fds[0].Revents&unix.POLLHUP != 0
}
