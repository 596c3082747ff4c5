package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/internal/memnet"
)

// slowServer keeps every request but those to /first. It counts them.
type slowServer struct {
	seen atomic.Int64
	came chan struct{} // gets one of each, up to the first ten
}

// keptSlow returns a client with a kept connection to a slow server.
func keptSlow(t *testing.T, scheme string, limit time.Duration) (*slowServer, *Client) {
	s := &slowServer{came: make(chan struct{}, 10)}
	over := make(chan struct{})
	h := http.NewServeMux()
	h.HandleFunc("/first", func(http.ResponseWriter, *http.Request) {})
	h.HandleFunc("/", func(http.ResponseWriter, *http.Request) {
		s.seen.Add(1)
		s.came <- struct{}{}
		<-over
	})
	server := &httptest.Server{Listener: memnet.Listen(t), Config: &http.Server{Handler: h, Protocols: new(http.Protocols)}}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	if scheme == "https" {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	c := newClient(t, server.Listener.Addr().String(), func(cfg *Config) {
		cfg.Scheme, cfg.ResponseHeaderTimeout = scheme, limit
		if scheme == "https" {
			cfg.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			cfg.TLS.NextProtos = []string{"http/1.1"}
		}
	})
	first := request(t, "GET", nil)
	first.URL.Path = "/first"
	if _, err := get(t, c, first); err != nil {
		t.Fatal(err)
	}
	return s, c
}

// TestSlowIsNotSentTwice: a request whose time is over while the server is still at work is not
// sent again, over a kept connection either: the server would do the work twice.
func TestSlowIsNotSentTwice(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, scheme := range []string{"http", "https", "h2c"} {
		for _, by := range []string{"response_header_timeout", "context"} {
			t.Run(scheme+", "+by, func(t *testing.T) {
				memnet.Test(t, func(t *testing.T) {
					longest := patience
					if by == "response_header_timeout" {
						longest = limit
					}
					s, c := keptSlow(t, scheme, longest)
					slow, caller := request(t, "GET", nil), new(plain)
					if by == "context" {
						ctx, cancel := context.WithTimeout(slow.Context(), limit)
						defer cancel()
						slow = slow.WithContext(ctx)
					}
					_, err := getFor(t, c, slow, caller)
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() || s.seen.Load() != 1 || caller.conns != 1 {
						t.Errorf("the server saw it %d times, over %d connections: %v", s.seen.Load(), caller.conns, err)
					}
				})
			})
		}
	}
}

// TestClosedHereIsNotSentAgain: a request whose connection this side closes is not sent again:
// the server may be at work on it. Over HTTP/2 a server that is silent for 5 s has its
// connection closed for the sake of one request, and the others fail.
func TestClosedHereIsNotSentAgain(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			s, c := keptSlow(t, scheme, patience)
			go func() {
				<-s.came
				c.mu.Lock()
				defer c.mu.Unlock()
				for raw := range c.conns {
					go raw.reset()
				}
			}()
			req, caller := request(t, "GET", nil), new(plain)
			ctx, cancel := context.WithTimeout(req.Context(), time.Second) // if it is sent again
			defer cancel()
			if _, err := getFor(t, c, req.WithContext(ctx), caller); err == nil || s.seen.Load() != 1 || caller.conns != 1 {
				t.Errorf("the server saw it %d times, over %d connections: %v", s.seen.Load(), caller.conns, err)
			}
		})
	}
}

// TestSentOnceIsNoDialError: a request that was sent, and whose server then takes no connection to
// send it again, does not fail with a DialError, unless the server has not looked at it.
func TestSentOnceIsNoDialError(t *testing.T) {
	for name, unseen := range map[string]bool{"ends": false, "goes away": true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			frames(conn, bufio.NewReader(conn), func(fr *xhttp2.Framer, stream uint32) {
				if stream == 1 {
					answerOK(fr, stream)
					return
				}
				_ = l.Close()
				if unseen {
					_ = fr.WriteGoAway(1, xhttp2.ErrCodeNo, nil)
				}
				_ = conn.(*net.TCPConn).CloseWrite()
			})
		})
		c := newClient(t, l.Addr().String(), func(cfg *Config) { cfg.Scheme = "h2c" })
		if _, err := get(t, c, request(t, "GET", nil)); err != nil {
			t.Fatal(err)
		}
		_, err = get(t, c, request(t, "GET", nil))
		if errors.As(err, new(*DialError)) != unseen || !IsUnreachable(err) {
			t.Errorf("%s: %v", name, err)
		}
		serving.Wait()
	}
}

// TestAnsweredIsNotSentAgain: once an HTTP/2 server has begun to answer, the request is not sent
// again, whatever it says next: it has looked at it. One whose connection ends unanswered is,
// and one that the server says it has not looked at.
func TestAnsweredIsNotSentAgain(t *testing.T) {
	end := func(c net.Conn, _ *xhttp2.Framer, _ uint32) { _ = c.(*net.TCPConn).CloseWrite() }
	refuse := func(_ net.Conn, fr *xhttp2.Framer, stream uint32) {
		_ = fr.WriteRSTStream(stream, xhttp2.ErrCodeRefusedStream)
	}
	leave := func(c net.Conn, fr *xhttp2.Framer, stream uint32) {
		_ = fr.WriteGoAway(stream-2, xhttp2.ErrCodeNo, nil)
		end(c, fr, stream)
	}
	for _, tt := range []struct {
		method, status string // begun with; none: unanswered
		whole          bool   // the header
		then           func(net.Conn, *xhttp2.Framer, uint32)
		seen           int64
	}{
		{"GET", "103", true, end, 1},
		{"GET", "103", true, refuse, 1},
		{"POST", "103", true, refuse, 1},
		{"POST", "103", true, leave, 1},
		{"GET", "200", false, end, 1},
		{"GET", "", true, end, 2},
		{"POST", "", true, end, 1},
		{"POST", "", true, refuse, 2},
		{"POST", "", true, leave, 2},
	} {
		var conns, streams atomic.Int64
		s := serve(t, func(c net.Conn, br *bufio.Reader) {
			first := conns.Add(1) == 1
			frames(c, br, func(fr *xhttp2.Framer, stream uint32) {
				if streams.Add(1) != 2 || !first {
					answerOK(fr, stream)
					return
				}
				if tt.status != "" {
					var block bytes.Buffer
					_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: tt.status})
					_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: tt.whole})
				}
				tt.then(c, fr, stream)
			})
		})
		c := newClient(t, s.addr, func(cfg *Config) { cfg.Scheme = "h2c" })
		if _, err := get(t, c, request(t, "GET", nil)); err != nil {
			t.Fatal(err)
		}
		_, err := get(t, c, request(t, tt.method, nil))
		if seen := streams.Load() - 1; seen != tt.seen || (err == nil) != (seen == 2) {
			t.Errorf("%s, answered %q, header whole %v, seen %d times, want %d: %v", tt.method, tt.status, tt.whole, seen, tt.seen, err)
		}
	}
}
