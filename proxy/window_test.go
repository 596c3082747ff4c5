package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// sendBody sends a POST and as much of an endless body as the server's windows allow,
// and returns how many bytes that were. It leaves the request open.
func sendBody(t *testing.T, conn net.Conn) (sent int) {
	t.Helper()
	f := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeader(t, "POST", "/"), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	const initial = 65535 // of both windows, RFC 9113, section 6.9.2
	stream, connection := initial, initial
	chunk := make([]byte, 16<<10)
	ping := [8]byte{1}
	for {
		// The answer to a PING is behind every window that the server gives.
		if err := f.WritePing(false, ping); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
					stream += int(v) - initial
				}
			case *http2.WindowUpdateFrame:
				if frame.StreamID == 0 {
					connection += int(frame.Increment)
				} else {
					stream += int(frame.Increment)
				}
			case *http2.PingFrame:
				answered = frame.IsAck()
			}
		}
		if stream <= 0 || connection <= 0 {
			return sent
		}
		for stream > 0 && connection > 0 {
			n := min(len(chunk), stream, connection)
			if err := f.WriteData(1, false, chunk[:n]); err != nil {
				t.Fatal(err)
			}
			stream, connection, sent = stream-n, connection-n, sent+n
		}
	}
}

// TestWaitingUploads: a request that waits in line has taken no more of its body than
// its window, and costs not much more than that.
func TestWaitingUploads(t *testing.T) {
	const window = 64 << 10
	const clients = 64
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	go func() { // has the slot
		if res, err := g.client.Get(g.url); err == nil {
			res.Body.Close()
		}
	}()
	up.awaitEntered(t)
	before := memoryInUse()
	for i := range clients {
		conn, err := net.DialTimeout("tcp", g.addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if sent := sendBody(t, conn); sent > window {
			t.Errorf("%d bytes of a body were taken from a request in line", sent)
		}
		g.sem.await(1, i+1)
	}
	each := (memoryInUse() - before) / clients
	t.Logf("%d KiB for each of %d uploads in line", each>>10, clients)
	if each > window+128<<10 {
		t.Errorf("an upload in line costs %d KiB", each>>10)
	}
	close(up.proceed)
}

// byPool has a semaphore for each pool.
type byPool map[string]*semaphore

func (p byPool) Acquire(ctx context.Context, req admission.Request) (Slot, error) {
	return p[req.Pool].Acquire(ctx, req)
}

// TestUploadsShareAConnection: uploads that wait in line do not keep others of their HTTP/2
// connection from their bodies, neither the one that has the slot nor those to another pool.
func TestUploadsShareAConnection(t *testing.T) {
	const uploads, size = 16, 1 << 20
	up := newGate()
	var seen atomic.Int64
	g := newGateway(t, 0, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/full" {
			up.pass(r)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		seen.Add(n)
	}), func(c *Config) {
		c.Pools = append(c.Pools, Pool{Name: "q", Upstreams: c.Pools[0].Upstreams})
		c.Routes = []Route{{Pool: "q", Match: Match{PathPrefix: "/other"}}, {Pool: "p"}}
		c.Admitter = byPool{"p": newSemaphore(t, 1), "q": newSemaphore(t, 1)}
	})
	line := g.handler.current.Load().cfg.Admitter.(byPool)["p"]
	var conns atomic.Int64
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conns.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: patience}
	post := func(path string) error {
		res, err := client.Post(g.url+path, "", bytes.NewReader(make([]byte, size)))
		if err != nil {
			return err
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
	answers := make(chan error, uploads)
	for i := range uploads {
		go func() { answers <- post("/full") }()
		if i == 0 {
			up.awaitEntered(t)
		}
		line.await(1, i)
	}
	if err := post("/other"); err != nil || seen.Load() != size {
		t.Errorf("beside %d uploads that wait, one to another pool: %v; the upstream has %d bytes", uploads-1, err, seen.Load())
	}
	close(up.proceed)
	for range uploads {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := seen.Load(); n != (uploads+1)*size {
		t.Errorf("the upstream has %d bytes of %d", n, (uploads+1)*size)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// memoryInUse returns the memory of heap and stacks.
func memoryInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// BenchmarkUploadHTTP2 is one upload of 64 MiB.
func BenchmarkUploadHTTP2(b *testing.B) {
	const size = 64 << 20
	up := startHandler(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	s, err := downstream.NewServer(downstream.Config{Handler: openHandler(b, up)})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: tr}
	defer func() {
		tr.CloseIdleConnections()
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	}()
	body := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		res, err := client.Post("http://"+l.Addr().String(), "", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
			b.Fatalf("%s over %s", res.Status, res.Proto)
		}
	}
}
