package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/internal/memnet"
)

// serveFrames serves each connection's streams with each.
func serveFrames(t *testing.T, each func(fr *xhttp2.Framer, conn int64, stream uint32), settings ...xhttp2.Setting) *server {
	var conns atomic.Int64
	return serve(t, func(c net.Conn, br *bufio.Reader) {
		conn := conns.Add(1)
		frames(c, br, func(fr *xhttp2.Framer, stream uint32) { each(fr, conn, stream) }, settings...)
	})
}

// frames serves the streams of one connection.
func frames(c net.Conn, br *bufio.Reader, each func(fr *xhttp2.Framer, stream uint32), settings ...xhttp2.Setting) {
	if _, err := io.ReadFull(br, make([]byte, len(xhttp2.ClientPreface))); err != nil {
		return
	}
	fr := xhttp2.NewFramer(c, br)
	if len(settings) > 0 {
		time.Sleep(50 * time.Millisecond) // for whoever does not wait for them
	}
	_ = fr.WriteSettings(settings...)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			if !f.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *xhttp2.PingFrame:
			if !f.IsAck() {
				_ = fr.WritePing(true, f.Data)
			}
		case *xhttp2.HeadersFrame:
			each(fr, f.StreamID)
		}
	}
}

// answerOK ends a stream with status 200.
func answerOK(fr *xhttp2.Framer, stream uint32) {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

// TestUnseen: what an HTTP/2 server says it has not looked at is sent once more.
// What of that net/http tells with errors it does not export is told apart by their
// text: this test fails when it changes.
func TestUnseen(t *testing.T) {
	for name, refuse := range map[string]func(fr *xhttp2.Framer, stream uint32){
		"refused":    func(fr *xhttp2.Framer, stream uint32) { _ = fr.WriteRSTStream(stream, xhttp2.ErrCodeRefusedStream) },
		"going away": func(fr *xhttp2.Framer, _ uint32) { _ = fr.WriteGoAway(0, xhttp2.ErrCodeNo, nil) },
	} {
		for _, method := range []string{"GET", "POST"} {
			var streams atomic.Int64
			s := serveFrames(t, func(fr *xhttp2.Framer, conn int64, stream uint32) {
				if streams.Add(1) == 1 {
					refuse(fr, stream)
					return
				}
				answerOK(fr, stream)
			})
			c := newClient(t, s.addr, func(c *Config) { c.Scheme = "h2c" })
			if _, err := get(t, c, request(t, method, nil)); err != nil || streams.Load() != 2 {
				t.Errorf("%s, %s: %v after %d streams", name, method, err, streams.Load())
			}
		}
	}
}

// TestGoingAway: a request that was begun on a connection whose server takes no more is
// sent over another one: it is unseen, in words of net/http's, too.
func TestGoingAway(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		s := serveFrames(t, func(fr *xhttp2.Framer, _ int64, stream uint32) {
			_ = fr.WriteGoAway(stream, xhttp2.ErrCodeNo, nil)
			answerOK(fr, stream)
		})
		tr := newHTTP2Transport(Config{})
		tcp, err := memnet.DialerOf(t).DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		raw := newConn(tcp, func() uint64 { return 0 }, 0, func(*conn) {})
		streams, err := newStreams(t.Context(), tr, s.addr, raw, raw)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() (*http.Response, error) {
			return (&exchange{streams: streams, stop: func() {}}).do(request(t, "GET", nil), new(httptrace.ClientTrace))
		}
		for range 2 {
			if !streams.begin() {
				t.Fatal("no room")
			}
		}
		began := time.Now()
		first, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		if res, err := ask(); err == nil {
			t.Error("the connection takes another request")
			_ = res.Body.Close()
		} else if !errors.As(err, new(unseenError)) {
			t.Errorf("%v: is not unseen", err)
		}
		_ = first.Body.Close()
		if took := time.Since(began); !raw.isClosed() || took != 0 {
			t.Errorf("the connection is closed: %v, after %v", raw.isClosed(), took)
		}
	})
}

// TestStreamStaysOpen: the connection of a server that does not show that it has taken in a reset is
// closed after a while, and the request is over no sooner.
func TestStreamStaysOpen(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		s := serve(t, func(c net.Conn, br *bufio.Reader) {
			_ = xhttp2.NewFramer(c, br).WriteSettings()
			_, _ = io.Copy(io.Discard, br)
		})
		c := newClient(t, s.addr, func(c *Config) { c.Scheme = "h2c" })
		const limit = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		_, err := get(t, c, request(t, "GET", nil).WithContext(ctx))
		if late := time.Since(began) - limit - closeTimeout; !errors.Is(err, context.DeadlineExceeded) || late < 0 || late > 2*lookInterval || c.Open() != 0 {
			t.Errorf("%v, %v late, %d connections are open", err, late, c.Open())
		}
	})
}

// TestFewStreams: where a server takes one request at a time over a connection, the next one
// does not wait for it.
func TestFewStreams(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		s := serveFrames(t, func(fr *xhttp2.Framer, conn int64, stream uint32) {
			if conn > 1 {
				answerOK(fr, stream)
			}
		}, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: 1})
		c := newClient(t, s.addr, func(c *Config) { c.Scheme = "h2c" })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := get(t, c, request(t, "GET", nil).WithContext(ctx)); err == nil {
					cancel() // the other one waits
				}
			})
		}
		time.AfterFunc(patience, cancel)
		wg.Wait()
		if s.conns.Load() != 2 {
			t.Errorf("%d connections", s.conns.Load())
		}
	})
}

// TestNotResent: what the server may have acted on is not, nor is a request whose
// body has been read from.
func TestNotResent(t *testing.T) {
	for name, tt := range map[string]struct {
		code xhttp2.ErrCode
		body io.Reader
	}{
		"internal error": {xhttp2.ErrCodeInternal, nil},
		"cancelled":      {xhttp2.ErrCodeCancel, nil},
		"body":           {xhttp2.ErrCodeRefusedStream, strings.NewReader("hello")},
	} {
		var streams atomic.Int64
		s := serveFrames(t, func(fr *xhttp2.Framer, _ int64, stream uint32) {
			streams.Add(1)
			if tt.body != nil {
				_, _ = fr.ReadFrame() // DATA
			}
			_ = fr.WriteRSTStream(stream, tt.code)
		})
		c := newClient(t, s.addr, func(c *Config) { c.Scheme = "h2c" })
		if _, err := get(t, c, request(t, "GET", tt.body)); err == nil || streams.Load() != 1 {
			t.Errorf("%s: %v after %d streams", name, err, streams.Load())
		}
	}
}
