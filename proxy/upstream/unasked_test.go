package upstream

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

// TestUnaskedOverTLS: what a server says behind its answer may be here and not yet read from TLS.
// It is not the answer to the next request.
func TestUnaskedOverTLS(t *testing.T) {
	secure := httptest.NewTLSServer(nil) // for its certificate
	defer secure.Close()
	for _, max := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer raw.Close()
					joined := &joinedWrites{Conn: raw}
					cfg := secure.TLS.Clone()
					cfg.MaxVersion = max
					c := tls.Server(joined, cfg)
					br := bufio.NewReader(c)
					for {
						if _, err := http.ReadRequest(br); err != nil {
							return
						}
						joined.hold = true // two records, one write
						_, _ = io.WriteString(c, short)
						_, _ = io.WriteString(c, evil)
						joined.release()
					}
				}()
			}
		}()
		c := newClient(t, l.Addr().String(), func(cfg *Config) {
			cfg.Scheme, cfg.TLS = "https", secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			cfg.TLS.NextProtos = []string{"http/1.1"}
		})
		for i := range 3 {
			if got, err := get(t, c, request(t, "GET", nil)); err != nil || got != "ok" {
				t.Errorf("%x, request %d: %q, %v", max, i, got, err)
			}
		}
	}
}

// joinedWrites joins writes while it holds them.
type joinedWrites struct {
	net.Conn
	hold bool
	held bytes.Buffer
}

func (j *joinedWrites) Write(p []byte) (int, error) {
	if j.hold {
		return j.held.Write(p)
	}
	return j.Conn.Write(p)
}

func (j *joinedWrites) release() {
	j.hold = false
	_, _ = j.Conn.Write(j.held.Bytes())
	j.held.Reset()
}

// TestAnswerBeforeRequest: an answer that begins before its request is whole may be the answer to
// another one, and the right one may follow. Its connection carries no other request.
func TestAnswerBeforeRequest(t *testing.T) {
	late := make(chan struct{})
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if req.Method == "POST" {
				_, _ = io.WriteString(c, evil)
				_, _ = io.Copy(io.Discard, req.Body)
				<-late
			}
			_, _ = io.WriteString(c, short)
		}
	})
	for _, length := range []int64{5, -1} {
		c := newClient(t, s.addr)
		if got, err := get(t, c, request(t, "GET", nil)); err != nil || got != "ok" {
			t.Fatal(got, err)
		}
		body, w := io.Pipe()
		req := request(t, "POST", body)
		req.ContentLength = length
		res, err := c.RoundTrip(req, &plain{stop: func() { _ = body.Close() }})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, "hello")
		_ = w.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if n := c.Open(); n != 0 {
			t.Errorf("length %d: %d connections are kept", length, n)
		}
		late <- struct{}{}
	}
}

// TestAnswerBeforeArrival: what comes over a kept connection before the server's system has the
// request cannot be its answer.
func TestAnswerBeforeArrival(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see tcpstate_other.go")
	}
	sent := make(chan struct{}, 1)
	s := serve(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		<-sent
		time.Sleep(time.Second)         // the last piece of the body is sent after its end has been read, and nothing here tells when
		_, _ = io.WriteString(c, short) // and no word of its body is read: what follows finds no room
		<-sent
		_, _ = io.WriteString(c, evil)
		<-sent
	})
	defer close(sent)
	client := newClient(t, s.addr)
	// More than the server takes, and less than fits the connection.
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), readerFunc(func([]byte) (int, error) {
		sent <- struct{}{}
		return 0, io.EOF
	}))
	post := request(t, "POST", body)
	post.ContentLength = 1 << 20
	if got, err := get(t, client, post); err != nil || got != "ok" || client.Open() != 1 {
		t.Fatalf("%q, %v, %d connections", got, err, client.Open())
	}
	caller := &sendingCaller{sends: func() { sent <- struct{}{} }}
	res, err := client.RoundTrip(request(t, "GET", nil), caller)
	if err == nil {
		b, _ := io.ReadAll(res.Body)
		t.Errorf("got %q", b)
		_ = res.Body.Close()
	}
	if caller.conns != 1 {
		t.Errorf("sent %d times", caller.conns)
	}
}

// sendingCaller is told right before its request is sent.
type sendingCaller struct {
	plain
	sends func()
}

func (c *sendingCaller) MaySend() bool {
	c.sends()
	return true
}
