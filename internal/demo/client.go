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
	"strings"
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

func newGroup(t Target, header http.Header) (*group, error) {
	req, err := http.NewRequest(http.MethodGet, t.URL, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("demo: target: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	var raw bytes.Buffer
	if err := req.Write(&raw); err != nil {
		return nil, fmt.Errorf("demo: target: %w", err)
	}
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	return &group{name: cmp.Or(t.Name, t.URL), addr: addr, request: raw.Bytes(), clients: t.Clients, samples: newSamples()}, nil
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

func newClient(r *run, g *group) *client { return &client{run: r, group: g} }

// loop asks and thinks in turn until the window has closed.
func (c *client) loop(ctx context.Context) {
	defer c.disconnect()
	for ctx.Err() == nil {
		select {
		case <-c.run.closed:
			return
		default:
		}
		c.group.waiting.Add(1)
		sent := time.Now()
		answer, err := c.ask(ctx)
		answer.latency = time.Since(sent)
		c.group.waiting.Add(-1)
		if ctx.Err() != nil {
			return // broken off, by us
		}
		if err != nil {
			answer.status = 0
			c.disconnect()
		}
		c.record(answer)
		pause := c.run.think.next()
		if !answer.ok() {
			pause = max(pause, failurePause)
		}
		if !c.pause(ctx, pause) {
			return
		}
	}
}

// pause reports whether the run goes on.
func (c *client) pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.run.closed:
		return false
	case <-ctx.Done():
		return false
	}
}

// record counts an answer. An answer is measured if it arrives within the window, even if its request
// began before: to leave such answers out would leave out long waits more often than short ones.
func (c *client) record(a answer) {
	g := c.group
	if a.ok() {
		g.completed.Add(1)
		g.accessSum.Add(int64(a.access()))
	} else {
		g.failed.Add(1)
	}
	if c.run.phase.Load() != phaseMeasure {
		return
	}
	g.mu.Lock()
	g.samples.add(a)
	g.mu.Unlock()
}

func (c *client) ask(ctx context.Context) (answer, error) {
	if c.conn == nil {
		if err := c.connect(ctx); err != nil {
			return answer{}, err
		}
	}
	if _, err := c.conn.Write(c.group.request); err != nil {
		return answer{}, fmt.Errorf("demo: asking: %w", err)
	}
	res, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return answer{}, fmt.Errorf("demo: reading the answer: %w", err)
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close() // read to its end, or given up
	if err != nil {
		return answer{}, fmt.Errorf("demo: reading the answer: %w", err)
	}
	if res.Close {
		c.disconnect()
	}
	return answer{
		status: res.StatusCode,
		hold:   parseMilliseconds(res.Header.Get(HoldHeader)),
		queue:  queueDuration(res.Header["Server-Timing"]),
	}, nil
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
		return fmt.Errorf("demo: connecting: %w", err)
	}
	c.conn = conn
	c.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if c.br == nil {
		c.br = bufio.NewReaderSize(conn, clientBuffer)
	} else {
		c.br.Reset(conn)
	}
	return nil
}

func (c *client) disconnect() {
	if c.conn == nil {
		return
	}
	c.stop()
	_ = c.conn.Close() // nothing is lost with it
	c.conn = nil
}

// queueDuration finds the gateway's entry in Server-Timing.
func queueDuration(lines []string) time.Duration {
	for _, line := range lines {
		for entry := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(entry), ";")
			if name != "kgate" {
				continue
			}
			for param := range strings.SplitSeq(params, ";") {
				if value, ok := strings.CutPrefix(strings.TrimSpace(param), "dur="); ok {
					return parseMilliseconds(value)
				}
			}
		}
	}
	return 0
}

func parseMilliseconds(s string) time.Duration {
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil || ms < 0 || ms > 1e12 {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}
