package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestTCPNotTakenYet: an upstream that ends its side and goes on reading has the slot
// until it has taken what the client said, or until the hold is over.
func TestTCPNotTakenYet(t *testing.T) {
	for name, held := range map[string]time.Duration{"read": 0, "cut": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended, read := make(chan struct{}), make(chan struct{})
			up := newTCPUpstream(t, func(c socket) {
				_ = c.SetReadBuffer(64 << 10)
				_ = c.CloseWrite()
				ended <- struct{}{}
				<-read
				_, _ = io.Copy(io.Discard, c)
			})
			defer close(read)
			g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].HoldMax = held })
			c := g.dial()
			c.send(string(make([]byte, 1<<20)))
			c.leave("closes its side")
			receive(t, ended)
			g.dial()
			if held == 0 {
				time.Sleep(50 * time.Millisecond) // in which the next one must not come
				g.sem.await(1, 1)
				read <- struct{}{}
			}
			receive(t, ended)
		})
	}
}

// TestUpgradeNotTakenYet: the same holds for an upgraded connection.
func TestUpgradeNotTakenYet(t *testing.T) {
	t.Parallel()
	ended, read := make(chan struct{}), make(chan struct{})
	up := newTCPUpstream(t, func(c socket) {
		_ = c.SetReadBuffer(64 << 10)
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = c.CloseWrite()
		ended <- struct{}{}
		<-read
		_, _ = io.Copy(io.Discard, c)
	})
	defer close(read)
	up.url.Scheme = "http"
	g := newGateway(t, 1, nil, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{up.url} })
	c := g.dial()
	c.send(upgradeRequest)
	if res := c.response(); res.StatusCode != 101 {
		t.Fatalf("got %s", res.Status)
	}
	receive(t, ended)
	c.send(string(make([]byte, 1<<20)))
	c.leave("closes its side")
	g.dial().send(upgradeRequest)
	time.Sleep(50 * time.Millisecond) // in which the next one must not come
	g.sem.await(1, 1)
	read <- struct{}{}
	receive(t, ended)
}

// TestTCPClientResetsLate: a client that has ended its side and then resets its
// connection frees the slot at once, and the upstream hears of it.
func TestTCPClientResetsLate(t *testing.T) {
	heard, ended := make(chan struct{}), make(chan error, 1)
	up := newTCPUpstream(t, func(c socket) {
		_, _ = io.Copy(io.Discard, c)
		close(heard)
		_ = c.SetReadDeadline(time.Now().Add(patience))
		ended <- tcpstate.AwaitReset(c)
	})
	g := newTCPGateway(t, 1, []*url.URL{up.url})
	c := g.dial()
	c.leave("closes its side")
	receive(t, heard)
	c.leave("resets")
	g.sem.await(0, 0)
	if err := receive(t, ended); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the upstream's connection ends with %v", err)
	}
}

// TestTCPUpstreamResetsLate: what an upstream has sent before its reset reaches the client,
// whatever that does meanwhile, and then the client sees a reset.
func TestTCPUpstreamResetsLate(t *testing.T) {
	for _, then := range []string{"waits", "says more", "closes its side"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			const size = 100 << 10
			reset := make(chan struct{})
			up := newTCPUpstream(t, func(c socket) {
				_, _ = c.Write(make([]byte, size))
				tcpstate.AwaitDelivered(c, patience, time.Now().Add(patience))
				_, _ = c.SetLinger(0), c.Close()
				close(reset)
			})
			g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].RequestRate = 128 << 10 })
			c := g.dial()
			receive(t, reset)
			switch then {
			case "says more":
				c.send("more")
			case "closes its side":
				c.leave(then)
			}
			if got, err := io.ReadAll(c.br); len(got) != size || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %d bytes, %v; want %d and a reset", len(got), err, size)
			}
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || !rec.Aborted {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

// TestRestIsBounded: a client that takes little of what an upstream has sent before its reset
// does not keep the slot for as long as it likes, whether that is still copied or waits in the
// kernel.
func TestRestIsBounded(t *testing.T) {
	const rest = time.Second
	for where, c := range map[string]struct{ size, rate int }{"is copied": {100 << 10, 32 << 10}, "is in the kernel": {2 << 20, 0}} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			size := c.size // longer than rest, either way
			reset := make(chan struct{})
			up := newTCPUpstream(t, func(c socket) {
				_, _ = c.Write(make([]byte, size))
				tcpstate.AwaitDelivered(c, patience, time.Now().Add(patience))
				_, _ = c.SetLinger(0), c.Close()
				close(reset)
			})
			g := newTCPGateway(t, 1, []*url.URL{up.url})
			tunnel, err := g.handler.current.Load().tcpPools["p"].backends[0].client.Tunnel(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			near, far := tcpPair(t)
			_ = near.SetWriteBuffer(2 * size)
			_ = far.SetReadBuffer(16 << 10)
			h := new(hold)
			h.limit(t.Context(), openSlot{}, &Pool{RequestRate: int64(c.rate)})
			j := &joint{tunnel: tunnel, hold: h, rest: rest}
			j.reset = func() { _, _ = near.SetLinger(0), near.Close() }
			j.lead(near, nil, nil)
			ended := make(chan struct{})
			go func() { defer close(ended); j.run() }()
			receive(t, reset)
			_, err = far.Write([]byte("more")) // by which the gateway learns of the reset, if it has not read all
			got := 0
			for buf := make([]byte, 16<<10); err == nil; time.Sleep(20 * time.Millisecond) {
				var n int
				n, err = far.Read(buf)
				got += n
			}
			if receive(t, ended); !errors.Is(err, syscall.ECONNRESET) || got == size {
				t.Errorf("read %d bytes, then %v", got, err)
			}
		})
	}
}

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if near, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	return near, far
}

// upgradeTo has a gateway's only upstream agree to an upgrade, and then do as it is told.
func upgradeTo(t *testing.T, then func(socket)) *gateway {
	t.Helper()
	up := newTCPUpstream(t, func(c socket) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
		then(c)
	})
	up.url.Scheme = "http"
	return newGateway(t, 1, nil, func(c *Config) {
		c.Pools[0].Upstreams, c.Pools[0].Transport.ResponseHeaderTimeout = []*url.URL{up.url}, 500*time.Millisecond
	})
}

// TestUpgradeClientResetsLate: the same holds for an upgraded connection.
func TestUpgradeClientResetsLate(t *testing.T) {
	heard, ended := make(chan struct{}), make(chan error, 1)
	g := upgradeTo(t, func(c socket) {
		_, _ = io.Copy(io.Discard, c)
		close(heard)
		_ = c.SetReadDeadline(time.Now().Add(patience))
		ended <- tcpstate.AwaitReset(c)
	})
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	c.expect("early")
	c.leave("closes its side")
	receive(t, heard)
	c.leave("resets")
	g.sem.await(0, 0)
	if err := receive(t, ended); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the upstream's connection ends with %v", err)
	}
}

// TestResetBehindFullWay: a client that resets its connection frees the slot at once, and the
// upstream hears of it, also when that reads nothing and the client has said all that the way
// there has room for.
func TestResetBehindFullWay(t *testing.T) {
	for _, kind := range []string{"TCP", "upgrade", "upgrade over TLS"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			deaf := func(c socket) {
				_ = c.SetReadDeadline(time.Now().Add(3 * patience))
				ended <- tcpstate.AwaitReset(c)
			}
			var g *gateway
			var c *rawConn
			if kind == "TCP" {
				g = newTCPGateway(t, 1, []*url.URL{newTCPUpstream(t, deaf).url})
				c = g.dial()
			} else {
				g = upgradeTo(t, deaf)
				if c = g.dial(); kind != "upgrade" {
					g.serveTLS(downstream.Config{})
					c = g.dialTLS("http/1.1")
				}
				c.send(upgradeRequest)
				c.response()
			}
			for err := error(nil); err == nil; {
				_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // it moves no more
				_, err = c.Write(make([]byte, 64<<10))
			}
			g.sem.await(1, 0)
			c.leave("resets")
			g.sem.await(0, 0)
			if err := receive(t, ended); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the upstream's connection ends with %v", err)
			}
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || rec.Aborted != (kind == "TCP") {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

// TestHalfCloseBeforeReset: a client that closes its sending side while some of what it has said
// is still on its way has not left, whether the upstream has ended its side or not; one that
// then resets its connection has.
func TestHalfCloseBeforeReset(t *testing.T) {
	const rate = 4 << 10
	for name, c := range map[string]struct {
		ends, resets bool
		size         int
	}{
		"one side has ended":   {size: rate / 2},
		"both sides have":      {ends: true, size: rate / 2},
		"the client resets it": {resets: true, size: 15 * rate}, // takes longer than anybody waits; the end fits behind it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan int64, 1)
			up := newTCPUpstream(t, func(conn socket) {
				if c.ends {
					_ = conn.CloseWrite()
				}
				n, _ := io.Copy(io.Discard, conn)
				heard <- n
			})
			g := newTCPGateway(t, 1, []*url.URL{up.url}, func(c *Config) { c.Pools[0].RequestRate = rate })
			client := g.dial()
			client.send(string(make([]byte, c.size)))
			client.leave("closes its side")
			if c.resets {
				time.Sleep(100 * time.Millisecond) // the gateway hears of one thing after the other
				client.leave("resets")
			}
			if n := receive(t, heard); (n == int64(c.size)) == c.resets {
				t.Errorf("the upstream got %d of %d bytes", n, c.size)
			}
			if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || rec.Aborted != c.resets {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

// TestUpstreamEndsAndTakesNothing: an upstream that has ended its side has the rest of what the
// client says for as long as it takes some of it, and no longer.
func TestUpstreamEndsAndTakesNothing(t *testing.T) {
	const rest = 3 * time.Second
	for name, c := range map[string]struct {
		size  int
		slow  bool // the upstream takes all of it, in more than twice that time
		stays bool // the client does not close its side
	}{
		"a little, of a client that closes": {size: 1 << 20},
		"a little, of a client that stays":  {size: 1 << 20, stays: true},
		"more than the way there holds":     {size: 64 << 20},
		"slowly":                            {size: 1 << 20, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan error, 1)
			var got int
			up := newTCPUpstream(t, func(conn socket) {
				_ = conn.SetReadBuffer(64 << 10)
				_ = conn.CloseWrite()
				_ = conn.SetReadDeadline(time.Now().Add(3 * patience))
				if !c.slow {
					heard <- tcpstate.AwaitReset(conn)
					return
				}
				for buf, err := make([]byte, c.size/90), error(nil); err == nil; time.Sleep(rest / 40) {
					var n int
					n, err = conn.Read(buf)
					got += n
				}
				heard <- nil
			})
			g := newTCPGateway(t, 1, []*url.URL{up.url})
			tunnel, err := g.handler.current.Load().tcpPools["p"].backends[0].client.Tunnel(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			near, far := tcpPair(t)
			h := new(hold)
			h.limit(t.Context(), openSlot{}, new(Pool))
			j := &joint{tunnel: tunnel, hold: h, rest: rest}
			j.reset = func() { _, _ = near.SetLinger(0), near.Close() }
			j.lead(near, nil, nil)
			said := make([]byte, c.size) // which takes a while on a busy machine, and a client that is silent for long has ended
			ended := make(chan struct{})
			go func() { defer close(ended); j.run() }()
			go func() {
				_, _ = far.Write(said)
				if !c.stays {
					_ = far.CloseWrite()
				}
			}()
			receive(t, ended)
			err = receive(t, heard)
			switch {
			case !c.slow && !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("the upstream's connection ends with %v", err)
			case c.slow && got != c.size:
				t.Errorf("the upstream got %d of %d bytes", got, c.size)
			}
		})
	}
}

// TestUpgradeSilentAfterTheEnd: a client that neither says anything nor closes its side once
// the upstream has ended does not keep the slot.
func TestUpgradeSilentAfterTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := upgradeTo(t, func(c socket) {
			time.Sleep(endTime - 1) // longer than the answer's header may take
			_, _ = io.WriteString(c, " and late")
		})
		c := g.dial()
		c.send(upgradeRequest)
		c.response()
		if got, err := io.ReadAll(c.br); string(got) != "early and late" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		g.sem.await(0, 0)
	})
}

// TestSlowUpstreamIsNotIdle: what the upstream takes counts as moving, of an upload and of TCP, also
// while the gateway can write nothing and the client can send nothing.
func TestSlowUpstreamIsNotIdle(t *testing.T) {
	const idle = 3 * time.Second
	body := string(make([]byte, 32<<20))
	for name, said := range map[string]string{"upload": "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 33554432\r\n\r\n" + body, "TCP": body} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newTCPUpstream(t, func(c socket) {
				_ = c.SetReadBuffer(64 << 10) // of a large one the other end hears only when a sixteenth is free
				for began := time.Now(); time.Since(began) < 3*idle; time.Sleep(idle / 30) {
					_, _ = c.Read(make([]byte, 16<<10))
				}
			})
			limit := func(c *Config) { c.Pools[0].Upstreams, c.Pools[0].HoldIdle = []*url.URL{up.url}, idle }
			var g *gateway
			if name == "TCP" {
				g = newTCPGateway(t, 1, nil, limit)
			} else {
				up.url.Scheme = "http"
				g = newGateway(t, 1, nil, limit)
			}
			c := g.dial()
			go func() { _, _ = io.WriteString(c, said) }()
			if rec := g.records.next(t); rec.Hold < 5*idle/2 {
				t.Errorf("record %+v", rec)
			}
			_, _ = io.Copy(io.Discard, c.br) // until the server has closed the connection
		})
	}
}

// TestTCPClientLeavesDial: a client that leaves while its upstream does not answer frees
// the slot long before the dial is given up, and no other upstream is dialled for it.
func TestTCPClientLeavesDial(t *testing.T) {
	t.Parallel()
	deaf := deafAddress(t)
	for _, how := range []string{"resets", "closes its side"} {
		up := newTCPUpstream(t, banner)
		g := newTCPGateway(t, 1, []*url.URL{mustURL(t, "tcp://"+deaf), up.url}, func(c *Config) { c.Pools[0].Transport.DialTimeout = time.Minute })
		c := g.dial()
		g.sem.await(1, 0)
		c.leave(how)
		g.sem.await(0, 0)
		if n := up.seen(); n != 0 {
			t.Errorf("%s: another upstream got %d connections", how, n)
		}
	}
}

// deafAddress returns an address that answers no more attempts to connect.
func deafAddress(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port))
	for range 10 { // nobody accepts
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue does not fill")
	return ""
}
