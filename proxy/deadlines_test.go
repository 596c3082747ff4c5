package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// TestOwnAnswers: what the gateway answers itself does not wait for a body that has
// not come. Such a connection is closed, and not kept for long; one whose body has
// come is kept.
func TestOwnAnswers(t *testing.T) {
	const length = "Content-Length: 1000000\r\n"
	for _, c := range []struct {
		name, line, header string
		status             int
		refusal            *admission.Refusal
	}{
		{"404", "POST /nowhere", "", 404, nil},
		{"400", "POST /pool/../x", "", 400, nil},
		{"CONNECT", "CONNECT h:80", "", 405, nil},
		{"202", "POST /pool/", "Prefer: kgate-ticket\r\n", 202, nil},
		{"400, no ticket API", "POST /plain/", "Kgate-Ticket: a\r\nKgate-Ticket: b\r\n", 400, nil},
		{"409", "POST /pool/", "Kgate-Ticket: unknown\r\n", 409, nil},
		{"404, unknown ticket", "PUT /.kgate/tickets/x", "", 404, nil},
		{"503", "POST /pool/", "", 503, &admission.Refusal{Reason: admission.QueueFull}},
		{"429", "POST /pool/", "", 429, &admission.Refusal{Reason: admission.ClientLimit}},
		{"417", "POST /pool/", "Expect: x\r\n", 417, nil},
		{"no body, 503", "POST /pool/", "Expect: 100-continue\r\n", 503, &admission.Refusal{Reason: admission.QueueFull}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(cfg *Config) {
				withTickets(cfg, &counter{semaphore: cfg.Admitter.(*semaphore)})
				cfg.TicketHandler = http.NotFoundHandler()
				plain := cfg.Pools[0]
				plain.Name, plain.Tickets = "plain", false
				cfg.Pools = append(cfg.Pools, plain)
				cfg.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}, {Pool: "plain", Match: Match{PathPrefix: "/plain/"}}}
			})
			g.sem.refusal = c.refusal
			g.listen(downstream.Config{ReadHeaderTimeout: time.Second})
			for _, body := range []string{length, "Transfer-Encoding: chunked\r\n"} {
				conn := g.dial()
				began := time.Now()
				conn.send(c.line + " HTTP/1.1\r\nHost: h\r\n" + body + c.header + "\r\n")
				res := conn.response()
				answered := time.Since(began)
				if res.StatusCode != c.status || !res.Close {
					t.Errorf("%q: got %v, close %v; want %d and close", body, res.Status, res.Close, c.status)
				}
				if res.StatusCode == http.StatusContinue {
					t.Error("the client is told to go on")
				}
				if c.status != 404 && c.status != 417 { // once is enough
					continue
				}
				_, err := io.Copy(io.Discard, conn.br) // patience ends it
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%q: the connection is still open after %v", body, time.Since(began))
				}
				t.Logf("answered after %v, closed after %v", answered, time.Since(began))
			}
			if strings.Contains(c.header, "Expect") {
				return
			}
			conn := g.dial()
			conn.send(c.line + " HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n" + c.header + "\r\nhello")
			res := conn.response()
			_, _ = io.Copy(io.Discard, res.Body)
			doubt := c.name == "400" || c.name == "CONNECT" // see TestDoubtCloses
			if res.StatusCode != c.status || res.Close != doubt {
				t.Errorf("with its body: got %v, close %v", res.Status, res.Close)
			}
			if doubt {
				return
			}
			conn.send("GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n")
			if res := conn.response(); res.StatusCode != 404 {
				t.Errorf("then got %v", res.Status)
			}
		})
	}
}

// TestUnreadBodyEndsConnection: after any answer to a request whose body does not
// come, also one of the upstream's, the connection is not kept for long.
func TestUnreadBodyEndsConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	conn := g.dial()
	conn.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
	if res := conn.response(); res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close {
		t.Errorf("got %v, close %v", res.Status, res.Close)
	}
	_, err := io.Copy(io.Discard, conn.br)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// TestNoBodiesFillConnections: clients that send no body do not keep others out for
// long.
func TestNoBodiesFillConnections(t *testing.T) {
	t.Parallel()
	const connections = 100
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
		c.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}}
	})
	g.listen(downstream.Config{MaxConnections: connections})
	for range connections {
		g.dial().send("POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
	}
	honest := g.dial()
	honest.send("GET /pool/ HTTP/1.1\r\nHost: h\r\n\r\n")
	if res := honest.response(); res.StatusCode != 200 {
		t.Errorf("got %v", res.Status)
	}
}

// TestStalledClients: on a route without a pool, a client that neither sends what it
// has announced nor reads what it asked for is cut off, over TCP and over a Unix socket, of
// which the kernel does not tell what was read; the upstream may take its time.
func TestStalledClients(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		upstream := startHandler(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/upload":
				_, _ = io.Copy(io.Discard, r.Body)
			case "/download/long": // copied inside the kernel, where that is possible
				w.Header().Set("Content-Length", fmt.Sprint(1<<40))
				fallthrough
			case "/download":
				writeEndlessly(w, r)
			case "/slow":
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				up.pass(r)
				_, _ = io.WriteString(w, "b")
			}
		})
		c.Routes = []Route{{Upstreams: c.Pools[0].Upstreams}}
		c.Routes[0].Upstreams[0] = upstream
	})
	stall := downstream.Config{StallTimeout: 50 * time.Millisecond}
	g.listen(stall)
	tcp := g.addr
	path := filepath.Join(t.TempDir(), "clients")
	g.listen(stall, func(l net.Listener) net.Listener {
		_ = l.Close()
		unix, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return unix
	})
	for _, g.addr = range []string{path, tcp} {
		for _, request := range []string{
			"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
			"GET /download HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /download/long HTTP/1.1\r\nHost: h\r\n\r\n",
		} {
			conn := g.dial()
			conn.send(request)
			if rec := g.records.next(t); !rec.Aborted && rec.Status != 408 {
				t.Errorf("%s: %q: record %+v", g.addr, request, rec)
			}
		}
	}
	conn := g.dial()
	conn.send("GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	up.awaitEntered(t)
	time.Sleep(4 * 50 * time.Millisecond) // nothing may happen meanwhile
	close(up.proceed)
	if got, err := io.ReadAll(conn.response().Body); string(got) != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestOwnBodyRead: a body that the gateway itself has read does not stand in the way
// of the next request on its connection; one that does not come ends.
func TestOwnBodyRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
		c.TicketHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				w.WriteHeader(http.StatusRequestTimeout)
			case err != nil || r.Context().Err() != nil:
				t.Errorf("%v, context %v", err, r.Context().Err())
			}
		})
	})
	conn := g.dial()
	for range 3 {
		conn.send("POST /.kgate/tickets HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
		if res := conn.response(); res.StatusCode != 200 || res.Close {
			t.Errorf("got %v, close %v", res.Status, res.Close)
		}
	}
	conn.send("POST /.kgate/tickets HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhell")
	if res := conn.response(); res.StatusCode != http.StatusRequestTimeout || !res.Close {
		t.Errorf("got %v, close %v", res.Status, res.Close)
	}
}

// TestAnswerBeforeBody: who sends a body that nobody wants gets the answer, and then the
// end of the connection, not a reset which would take the answer with it.
func TestAnswerBeforeBody(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}), func(c *Config) {
		c.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}}
	})
	inTheClear := g.addr
	g.serveTLS(downstream.Config{})
	secured := g.addr
	const size = 16 << 20 // more than the buffers on the way to the upstream take
	for path, status := range map[string]int{"/pool/": http.StatusRequestEntityTooLarge, "/nowhere": http.StatusNotFound} {
		for _, header := range []string{"", "Connection: close\r\n", "Expect: 100-continue\r\n"} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s TLS %v", path, header, secure), func(t *testing.T) {
					g.addr = inTheClear
					dial := g.dial
					if secure {
						g.addr, dial = secured, func() *rawConn { return g.dialTLS("http/1.1") }
					}
					c := dial()
					c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n", path, size, header))
					c.send(strings.Repeat("x", size))
					res := c.response()
					for res.StatusCode == http.StatusContinue {
						res = c.response()
					}
					if res.StatusCode != status {
						t.Errorf("got %v", res.Status)
					}
					if !res.Close { // the buffers on the way have taken the whole body
						_, _ = io.Copy(io.Discard, res.Body)
						c.send("GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
						if res := c.response(); res.StatusCode != http.StatusNotFound {
							t.Errorf("the next request gets %v", res.Status)
						}
					}
					if _, err := io.Copy(io.Discard, c.br); err != nil {
						t.Errorf("the connection ends with %v", err)
					}
				})
			}
		}
	}
}
