package abuse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/test/cluster"
)

// TestHeads: many requests with as much of a header as is taken wait, over HTTP/1.1 and over
// HTTP/2, where a byte can stand for a cookie of 4 KB. The gateway takes as much memory as
// docs/sizing.md says, and refuses the rest.
func TestHeads(t *testing.T) {
	const most = 300 << 20
	const room = 32 << 20 / 15_000 // for so many heads, at most
	requests := 5000
	if soak() {
		requests = 10_000
	}
	needFiles(t, requests+1000)
	for _, over := range []struct {
		name string
		send func(t *testing.T, addr string, requests int) (wire int)
	}{{"HTTP/1.1", sendHeads1}, {"HTTP/2", sendHeads2}} {
		t.Run(over.name, func(t *testing.T) {
			u := &turnstile{hold: patience}
			_, _, url := cluster.NewJudge(t, u)
			c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: url, Listen: fmt.Sprintf("max_connections: %d", requests+100)})
			g := c.Gateways[0]
			if _, err := g.RSS(); err != nil {
				t.Skip("needs /proc to tell the gateway's memory: ", err)
			}
			wire := over.send(t, g.HTTP, requests)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			var waiting, refused float64
			if err := cluster.Await(ctx, func() error {
				m, err := g.Metrics(ctx)
				if err != nil {
					return err
				}
				waiting, refused = m.Sum("kgate_waiting"), m.Sum("kgate_requests_total", `outcome="queue_full"`)
				if int(waiting+refused) < requests-1 || waiting > room {
					return fmt.Errorf("%v wait and %v were refused, of %d", waiting, refused, requests)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			rss, err := g.RSS()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d requests, %d KB on the wire: %v wait, %v refused; the gateway takes %d MiB", requests, wire/1000, waiting, refused, rss>>20)
			if rss > most {
				t.Errorf("the gateway takes %d MiB", rss>>20)
			}
		})
	}
}

// dialHeads opens a connection whose answers are dropped.
func dialHeads(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn
}

func sendHeads1(t *testing.T, addr string, requests int) (wire int) {
	head := "GET / HTTP/1.1\r\nHost: kgate.test\r\nCookie: " + strings.Repeat("c", 15<<10) + "\r\n\r\n"
	for range requests {
		if _, err := io.WriteString(dialHeads(t, addr), head); err != nil {
			t.Fatal(err)
		}
	}
	return requests * len(head)
}

func sendHeads2(t *testing.T, addr string, requests int) (wire int) {
	const streams = 100 // of a connection
	for sent := 0; sent < requests; sent += streams {
		conn := dialHeads(t, addr)
		var out bytes.Buffer
		out.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&out, nil)
		_ = f.WriteSettings()
		_ = f.WriteSettingsAck()
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := range streams {
			block.Reset()
			for _, field := range []hpack.HeaderField{
				{Name: ":method", Value: http.MethodGet},
				{Name: ":scheme", Value: "http"},
				{Name: ":path", Value: "/"},
				{Name: ":authority", Value: "kgate.test"},
			} {
				_ = enc.WriteField(field)
			}
			// The table holds 4096 bytes. From the second time on it is one byte.
			for range 4 {
				_ = enc.WriteField(hpack.HeaderField{Name: "cookie", Value: strings.Repeat("c", 3900)})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		}
		wire += out.Len()
		if _, err := conn.Write(out.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	return wire
}
