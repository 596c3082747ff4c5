package demo

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// failurePause keeps a client whose target is down from spinning.
	failurePause = 100 * time.Millisecond
	// clientBuffer is small, since there may be 10,000 clients and answers
	// are short; a larger answer is read in more steps.
	clientBuffer = 2 << 10
)

// window is when answers are measured, for all clients of one Run.
type window struct{ open, closed atomic.Bool }

// client is one of the closed system's clients. It writes HTTP directly to a connection of its own:
// 10,000 clients with an http.Client would cost more than the gateway that they measure.
type client struct {
	addr    string
	request []byte // the same every time
	conn    net.Conn
	answers *bufio.Reader
	due     time.Time       // the next request, if it has a time
	every   time.Duration   // from one to the next; 0: each follows the answer to the last one
	waits   []time.Duration // access times of answers with status 2xx
	failed  map[int]int     // the other answers by status; status 0 is no answer
}

// loop asks again and again until the window has closed. An answer is measured if it arrives within the
// window, even if its request began before: to leave such answers out would leave out long waits more
// often than short ones.
func (c *client) loop(ctx context.Context, w *window) {
	defer c.disconnect()
	for !w.closed.Load() {
		sent := c.start()
		status, held, err := c.ask(ctx)
		wait := max(time.Since(sent)-held, 0)
		if ctx.Err() != nil {
			return // broken off, by us
		}
		if err != nil {
			status = 0
			c.disconnect()
		}
		ok, measured := status/100 == 2, w.open.Load()
		switch {
		case ok && measured:
			c.waits = append(c.waits, wait)
		case measured:
			c.failed[status]++
		}
		if !ok {
			time.Sleep(failurePause)
		}
	}
}

// start waits until the next request is due, and returns that time. A request that begins late, because
// the last answer was late, has waited since then.
func (c *client) start() time.Time {
	if c.every == 0 {
		return time.Now()
	}
	due := c.due
	time.Sleep(time.Until(due))
	c.due = due.Add(c.every)
	return due
}

// ask sends the request, and returns the answer's status and how long the upstream held it.
func (c *client) ask(ctx context.Context) (status int, held time.Duration, err error) {
	if c.conn == nil {
		if c.conn, err = new(net.Dialer).DialContext(ctx, "tcp", c.addr); err != nil {
			return 0, 0, err
		}
		c.answers = bufio.NewReaderSize(c.conn, clientBuffer)
	}
	conn := c.conn
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(c.request); err != nil {
		return 0, 0, err
	}
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if res.Close {
		c.disconnect()
	}
	ms, _ := strconv.ParseFloat(res.Header.Get(HoldHeader), 64) // 0 if there is none
	return res.StatusCode, time.Duration(ms * float64(time.Millisecond)), err
}

func (c *client) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close() // nothing is lost with it
		c.conn = nil
	}
}
