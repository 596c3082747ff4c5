package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawUpstream is an HTTP/2 upstream that looks at frames only. It counts the streams
// that are open by what it has read and written.
type rawUpstream struct {
	t        testing.TB
	entered  chan uint32 // each stream as it is opened
	endFirst bool        // answer at once, and end the stream before the client does

	mu      sync.Mutex
	open    int
	most    int
	early   int // streams that were opened while another was open
	streams int
}

func startRawUpstream(t testing.TB, endFirst bool) (*rawUpstream, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &rawUpstream{t: t, entered: make(chan uint32, 1<<16), endFirst: endFirst}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return f, l.Addr().String()
}

func (f *rawUpstream) count(delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += delta
	f.most = max(f.most, f.open)
	if delta > 0 {
		f.streams++
		if f.open > 1 {
			f.early++
		}
	}
}

// await waits for a stream to be opened.
func (f *rawUpstream) await(t testing.TB) {
	t.Helper()
	select {
	case <-f.entered:
	case <-time.After(patience):
		t.Fatal("no request reached the upstream")
	}
}

// serve speaks with one connection. Of each stream it knows which sides have ended.
func (f *rawUpstream) serve(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c, c)
	_ = fr.WriteSettings()
	type state struct{ here, there bool }
	streams := make(map[uint32]*state)
	ended := func(id uint32, here, there bool) {
		s := streams[id]
		if s == nil {
			return
		}
		s.here, s.there = s.here || here, s.there || there
		if s.here && s.there {
			delete(streams, id)
			f.count(-1)
		}
	}
	defer func() { f.count(-len(streams)) }()
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = fr.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			id := frame.StreamID
			streams[id] = new(state)
			f.count(1)
			ended(id, false, frame.StreamEnded())
			if f.endFirst {
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
				ended(id, true, false)
			}
			f.entered <- id
		case *http2.DataFrame:
			ended(frame.StreamID, false, frame.StreamEnded())
		case *http2.RSTStreamFrame:
			ended(frame.StreamID, true, true)
		}
	}
}

// TestHandOff: over HTTP/2 a slot is free only when its stream is closed on the
// wire, whatever ended the request. The upstream is the judge: with k = 1 it never
// has two streams open.
func TestHandOff(t *testing.T) {
	t.Parallel()
	handOffs := 1000
	if testing.Short() {
		handOffs = 100
	}
	for name, tt := range map[string]struct {
		endFirst bool
		change   func(*Config)
		method   string
		end      func(g *gateway, c *rawConn) // ends a request that is at the upstream
	}{
		"the client leaves":       {end: func(_ *gateway, c *rawConn) { _ = c.Close() }},
		"hold.max":                {change: func(c *Config) { c.Pools[0].HoldMax = 2 * time.Millisecond }},
		"the slot is lost":        {end: func(g *gateway, _ *rawConn) { g.sem.last().lose() }},
		"the upstream ends first": {endFirst: true, method: "POST"},
		"the upstream ends first, the client leaves": {endFirst: true, method: "POST", end: func(_ *gateway, c *rawConn) { _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			up, addr := startRawUpstream(t, tt.endFirst)
			g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
				c.Pools[0].Upstreams[0] = mustURL(t, "h2c://"+addr)
				if tt.change != nil {
					tt.change(c)
				}
			})
			request := "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			if tt.method == "POST" { // whose body does not come
				request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
			}
			// Two are always on their way: when one ends, the next is in line.
			waiting := g.dial()
			waiting.send(request)
			for range handOffs {
				if tt.end != nil { // else it ends by itself, and may be cut before it is sent
					up.await(t)
				}
				now := waiting
				waiting = g.dial()
				waiting.send(request)
				if !tt.endFirst && tt.end != nil {
					g.sem.await(1, 1)
				}
				if tt.end != nil {
					tt.end(g, now)
				} else {
					now.response()
				}
				defer now.Close()
			}
			_ = waiting.Close()
			g.sem.await(0, 0)
			up.mu.Lock()
			defer up.mu.Unlock()
			if up.most != 1 || up.streams < handOffs/2 {
				t.Errorf("%d streams were open at once in %d hand-offs, want 1", up.most, up.streams)
			}
			t.Logf("%d hand-offs, %d early", up.streams, up.early)
		})
	}
}

// TestCancelStorm: a hundred clients that leave at random moments, until the upstream
// has seen enough of them.
func TestCancelStorm(t *testing.T) {
	const k, enough = 3, 20
	up, addr := startRawUpstream(t, false)
	g := newGateway(t, k, http.NotFoundHandler(), func(c *Config) {
		c.Pools[0].Upstreams[0] = mustURL(t, "h2c://"+addr)
	})
	// A dial ends with its request: before the storm the connection is made.
	first := g.dial()
	first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	up.await(t)
	_ = first.Close()

	storm, over := context.WithTimeout(context.Background(), 3*patience)
	defer over()
	goesOn := func() bool {
		up.mu.Lock()
		defer up.mu.Unlock()
		return storm.Err() == nil && (up.most < k || up.streams < enough)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for j := 0; j < 10 || goesOn(); j++ {
				c, err := net.Dial("tcp", g.addr)
				if err != nil {
					t.Error(err)
					return
				}
				body := strings.Repeat("x", (i+j)%3)
				_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", 2, body)
				time.Sleep(time.Duration((i*7+j*13)%20) * time.Millisecond)
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	g.sem.await(0, 0)
	up.mu.Lock()
	defer up.mu.Unlock()
	if up.most != k || up.streams < enough {
		t.Errorf("%d of %d streams were open at once, want %d of at least %d", up.most, up.streams, k, enough)
	}
	t.Logf("%d streams", up.streams)
}
