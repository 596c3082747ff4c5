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
	"testing/synctest"
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
			inVirtualTime(t, func(t *testing.T) {
				g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(cfg *Config) {
					withTickets(cfg, &counter{semaphore: cfg.Admitter.(*semaphore)})
					cfg.TicketHandler = http.NotFoundHandler()
					plain := cfg.Pools[0]
					plain.Name, plain.Tickets = "plain", false
					cfg.Pools = append(cfg.Pools, plain)
					cfg.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}, {Pool: "plain", Match: Match{PathPrefix: "/plain/"}}}
				})
				g.sem.refusal = c.refusal
				server := g.listen(downstream.Config{})
				for _, body := range []string{length, "Transfer-Encoding: chunked\r\n"} {
					conn := g.dial()
					began := time.Now()
					conn.send(c.line + " HTTP/1.1\r\nHost: h\r\n" + body + c.header + "\r\n")
					res := conn.response()
					if took := time.Since(began); took > 0 {
						t.Errorf("%q: answered after %v", body, took)
					}
					if res.StatusCode != c.status || !res.Close {
						t.Errorf("%q: got %v, close %v; want %d and close", body, res.Status, res.Close, c.status)
					}
					if res.StatusCode == http.StatusContinue {
						t.Error("the client is told to go on")
					}
					endAfter(t, server, downstream.LingerTimeout)
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
		})
	}
}

// endAfter waits until the server's connections end, which takes exactly so long.
func endAfter(t *testing.T, server *downstream.Server, want time.Duration) {
	t.Helper()
	time.Sleep(want - time.Nanosecond)
	synctest.Wait()
	if server.Connections() == 0 {
		t.Errorf("the connection has ended before %v", want)
	}
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	if n := server.Connections(); n > 0 {
		t.Errorf("%d connections are open after %v", n, want)
	}
}

// TestUnreadBodyEndsConnection: after any answer to a request whose body does not
// come, also one of the upstream's, the connection is not kept for long.
func TestUnreadBodyEndsConnection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}))
		conn := g.dial()
		conn.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
		if res := conn.response(); res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close {
			t.Errorf("got %v, close %v", res.Status, res.Close)
		}
		endAfter(t, g.server, downstream.LingerTimeout)
	})
}

// TestNoBodiesFillConnections: clients that send no body do not keep others out for
// long.
func TestNoBodiesFillConnections(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		const connections = 100
		g := newGateway(t, 1, http.HandlerFunc(echoRequest), func(c *Config) {
			c.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}}
		})
		g.listen(downstream.Config{MaxConnections: connections})
		for range connections {
			g.dial().send("POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
		}
		honest, began := g.dial(), time.Now()
		honest.send("GET /pool/ HTTP/1.1\r\nHost: h\r\n\r\n")
		if res := honest.response(); res.StatusCode != 200 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("got %v after %v", res.Status, time.Since(began))
		}
	})
}

// TestStalledClients: on a route without a pool, a client that neither sends what it
// has announced nor reads what it asked for is cut off; the upstream may take its time.
func TestStalledClients(t *testing.T) {
	for _, tt := range []struct {
		request string
		status  int // 0: the answer is broken off
	}{
		{"POST /free/upload HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", 408},
		{"GET /free/download HTTP/1.1\r\nHost: h\r\n\r\n", 0},
		{"GET /free/slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200},
	} {
		inVirtualTime(t, func(t *testing.T) {
			g := newGateway(t, 1, stallUpstream(4*stall), withFreeRoute)
			g.listen(downstream.Config{StallTimeout: stall})
			conn, began := g.dial(), time.Now()
			_ = conn.SetDeadline(began.Add(5 * stall))
			conn.send(tt.request)
			if tt.status == 200 {
				if got, err := io.ReadAll(conn.response().Body); string(got) != "ab" {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if rec := g.records.next(t); rec.Aborted != (tt.status == 0) || tt.status == 408 && rec.Status != 408 {
				t.Errorf("%q: record %+v", tt.request, rec)
			}
			if took := time.Since(began); took != stall {
				t.Errorf("%q: broken off after %v", tt.request, took)
			}
		})
	}
}

// stallUpstream takes so long for some of its answers.
func stallUpstream(slow time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/free/upload":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/free/download/long": // copied inside the kernel, where that is possible
			w.Header().Set("Content-Length", fmt.Sprint(1<<40))
			fallthrough
		case "/free/download":
			writeEndlessly(w, r)
		case "/free/slow":
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(slow)
			_, _ = io.WriteString(w, "b")
		}
	}
}

// TestStalledReaders: a client of TCP that does not read is cut off by what its kernel acknowledges, and
// one of a Unix socket without that.
func TestStalledReaders(t *testing.T) {
	g := newGateway(t, 1, stallUpstream(0), withFreeRoute)
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
		for _, target := range []string{"/free/download", "/free/download/long"} {
			g.dial().send("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")
			if rec := g.records.next(t); !rec.Aborted {
				t.Errorf("%s: %q: record %+v", g.addr, target, rec)
			}
		}
	}
}

// TestOwnBodyRead: a body that the gateway itself has read does not stand in the way
// of the next request on its connection; one that does not come ends.
func TestOwnBodyRead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
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
		began := time.Now()
		if res := conn.response(); res.StatusCode != http.StatusRequestTimeout || !res.Close || time.Since(began) != ownBodyTimeout {
			t.Errorf("got %v, close %v, after %v", res.Status, res.Close, time.Since(began))
		}
	})
}

// TestAnswerBeforeBody: who sends a body that nobody wants gets the answer, and then the
// end of the connection, not a reset which would take the answer with it.
func TestAnswerBeforeBody(t *testing.T) {
	const size = 1 << 20 // more than the buffers on the way to the upstream take
	for path, status := range map[string]int{"/pool/": http.StatusRequestEntityTooLarge, "/nowhere": http.StatusNotFound} {
		for _, header := range []string{"", "Connection: close\r\n", "Expect: 100-continue\r\n"} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s TLS %v", path, header, secure), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T) {
						g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							w.Header().Set("Connection", "close")
							w.WriteHeader(http.StatusRequestEntityTooLarge)
						}), func(c *Config) {
							c.Routes = []Route{{Pool: "p", Match: Match{PathPrefix: "/pool/"}}}
						})
						dial := g.dial
						if secure {
							g.serveTLS(downstream.Config{})
							dial = func() *rawConn { return g.dialTLS("http/1.1") }
						}
						c := dial()
						c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n", path, size, header))
						c.send(strings.Repeat("x", size))
						res := c.response()
						for res.StatusCode == http.StatusContinue {
							res = c.response()
						}
						if res.StatusCode != status || !res.Close {
							t.Errorf("got %v, close %v", res.Status, res.Close)
						}
						if _, err := io.Copy(io.Discard, c.br); err != nil {
							t.Errorf("the connection ends with %v", err)
						}
					})
				})
			}
		}
	}
}
