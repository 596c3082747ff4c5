package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
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
	maxDials     = 128
)

// run is the state that the clients of one Run share.
type run struct {
	measuring atomic.Bool   // the window is open
	closed    atomic.Bool   // it has been open
	dials     chan struct{} // bounds how many connect at once: listen queues are short
	groups    []*group
}

// group is one target and its clients' counts.
type group struct {
	name    string
	addr    string
	request []byte // the same every time
	samples samples
}

func newGroup(t Target) (*group, error) {
	req, err := http.NewRequest(http.MethodGet, t.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("demo: target: %w", err)
	}
	var raw bytes.Buffer
	if err := req.Write(&raw); err != nil {
		return nil, fmt.Errorf("demo: target: %w", err)
	}
	addr := net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), "80"))
	return &group{name: cmp.Or(t.Name, t.URL), addr: addr, request: raw.Bytes()}, nil
}

// client is one of the closed system's clients. It writes HTTP directly to a connection of its own:
// 10,000 clients with an http.Client would cost more than the gateway that they measure.
type client struct {
	run   *run
	group *group
	conn  net.Conn
	br    *bufio.Reader
	stop  func() bool // ends the watch of the context over conn
}

// loop asks again and again until the window has closed. An answer is measured if it arrives within the
// window, even if its request began before: to leave such answers out would leave out long waits more
// often than short ones.
func (c *client) loop(ctx context.Context) {
	defer c.disconnect()
	for ctx.Err() == nil && !c.run.closed.Load() {
		sent := time.Now()
		status, hold, err := c.ask(ctx)
		access := max(time.Since(sent)-hold, 0)
		if ctx.Err() != nil {
			return // broken off, by us
		}
		if err != nil {
			status = 0
			c.disconnect()
		}
		if c.run.measuring.Load() {
			c.group.samples.add(status, access)
		}
		if !isOK(status) {
			time.Sleep(failurePause)
		}
	}
}

// ask sends the request, and returns the answer's status and how long the upstream held it.
func (c *client) ask(ctx context.Context) (status int, hold time.Duration, err error) {
	if c.conn == nil {
		if err := c.connect(ctx); err != nil {
			return 0, 0, err
		}
	}
	if _, err := c.conn.Write(c.group.request); err != nil {
		return 0, 0, err
	}
	res, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, err
	}
	if res.Close {
		c.disconnect()
	}
	ms, _ := strconv.ParseFloat(res.Header.Get(HoldHeader), 64) // 0 if there is none
	return res.StatusCode, time.Duration(ms * float64(time.Millisecond)), nil
}

func (c *client) connect(ctx context.Context) error {
	select {
	case c.run.dials <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", c.group.addr)
	<-c.run.dials
	if err != nil {
		return err
	}
	c.conn, c.br = conn, bufio.NewReaderSize(conn, clientBuffer)
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return nil
}

func (c *client) disconnect() {
	if c.conn != nil {
		c.stop()
		_ = c.conn.Close() // nothing is lost with it
		c.conn = nil
	}
}
