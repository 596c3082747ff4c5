package downstream

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// disconnectWatch learns from the kernel which clients have closed their
// connections, by one epoll instance for all connections of a server. One
// goroutine waits for it, in Go's poller: it costs no thread.
//
// That goroutine never waits for a connection: meanwhile it would not notice that
// other clients leave. It sets deadlines and ends contexts. Closing is left to others: it
// waits until reads and writes under way have ended, and TLS says goodbye first.
type disconnectWatch struct {
	file    *os.File        // the epoll instance
	epoll   syscall.RawConn // of file
	clients *clients
	first   sync.Once
	running sync.WaitGroup // the goroutine, from the first socket on
}

func newDisconnectWatch(of *clients) (*disconnectWatch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that os.NewFile has Go's poller wait for it
	}
	if err != nil {
		return nil, fmt.Errorf("downstream: watching for clients that leave: %w", err)
	}
	w := &disconnectWatch{file: os.NewFile(uintptr(fd), "epoll"), clients: of}
	if w.epoll, err = w.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// add begins to watch the socket of a connection. Once its client has closed the connection, or its
// sending side, leave is called, and again if the client then resets the connection. The kernel
// forgets it when it is closed.
func (w *disconnectWatch) add(c *Conn) error {
	sc, ok := c.raw.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	w.first.Do(func() { w.running.Go(w.run) })
	var failure error
	event := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLET, // and EPOLLHUP and EPOLLERR, always
		Fd:     int32(c.number), Pad: int32(c.number >> 32),
	}
	failed := w.epoll.Control(func(epoll uintptr) {
		err = raw.Control(func(fd uintptr) { failure = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &event) })
	})
	return errors.Join(failed, err, failure)
}

// close ends all watches. It may be called again.
func (w *disconnectWatch) close() {
	_ = w.file.Close()
	w.running.Wait()
}

func (w *disconnectWatch) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := w.epoll.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0) // -1 on EINTR, and nothing else can fail
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for _, e := range events[:n] {
			if c := w.clients.get(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); c != nil {
				c.leave(e.Events&unix.EPOLLERR != 0)
			}
		}
	}
}
