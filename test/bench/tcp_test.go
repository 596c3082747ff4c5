package bench

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// BenchmarkTCP compares how fast one client gets 64 MiB over a TCP connection, and sends
// as much, through kgate and through HAProxy in mode tcp, with its splicing and without.
func BenchmarkTCP(b *testing.B) {
	t, filled := newTable("TCP: one client, 64 MiB each way in turn, median of 9 rounds of 4 in turn",
		"system\tdown MiB/s\tup MiB/s\tconnections/s")
	if filled {
		return
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		b.Skip("needs HAProxy (Debian package haproxy)")
	}
	upstream := serveStreams(b)
	c := cluster.Start(b, cluster.Options{Gateways: 1, Name: "tcp", K: 1, Upstream: "http://127.0.0.1:9", Pools: []cluster.Pool{
		{Name: "tcp", K: 100, Upstream: "tcp://" + upstream},
	}})
	systems := []*tcpSystem{
		{name: "upstream alone", addr: upstream},
		{name: "HAProxy, mode tcp", addr: startTCPHAProxy(b, upstream, "")},
		{name: "HAProxy, option splice-auto", addr: startTCPHAProxy(b, upstream, "option splice-auto")},
		{name: "one kgate", addr: c.TCP(c.Gateways[0].Name, "tcp")},
	}
	const rounds = 9
	for range rounds {
		for _, s := range systems {
			s.round(b)
		}
	}
	for _, s := range systems {
		t.row("%s\t%.0f\t%.0f\t%.0f", s.name, median(s.down), median(s.up), median(s.short))
	}
	plain, ours := systems[1], systems[3]
	t.note("one kgate: down %.0f %%, up %.0f %%, connections/s %.0f %% of HAProxy in mode tcp, round by round (median)",
		median(ratios(ours.down, plain.down)), median(ratios(ours.up, plain.up)), median(ratios(ours.short, plain.short)))
	b.ReportMetric(median(ratios(ours.down, plain.down)), "%of-haproxy")
	b.ReportMetric(0, "ns/op")
}

// tcpSystem is a way to the upstream.
type tcpSystem struct {
	name, addr      string
	down, up, short []float64 // MiB/s, and connections that carry a byte each way per second
}

const (
	streamSize = 64 << 20
	wantDown   = 'd'
	wantUp     = 'u'
	wantByte   = 'b'
)

// serveStreams serves an upstream that sends, takes in, or answers one byte, as the first
// byte of a connection says, and then ends.
func serveStreams(b *testing.B) (addr string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveStream(conn)
		}
	}()
	return l.Addr().String()
}

func serveStream(conn net.Conn) {
	defer conn.Close()
	var want [1]byte
	if _, err := io.ReadFull(conn, want[:]); err != nil {
		return
	}
	size := int64(1)
	switch want[0] {
	case wantDown:
		size = streamSize
	case wantUp:
		_, _ = io.CopyN(io.Discard, conn, streamSize)
	}
	piece := make([]byte, min(size, 1<<18))
	for ; size > 0; size -= int64(len(piece)) {
		if _, err := conn.Write(piece); err != nil {
			return
		}
	}
}

// round measures each of the three once.
func (s *tcpSystem) round(b *testing.B) {
	b.Helper()
	const times = 4
	mib := float64(times * streamSize >> 20)
	s.down = append(s.down, mib/s.time(b, times, wantDown, 0, streamSize).Seconds())
	s.up = append(s.up, mib/s.time(b, times, wantUp, streamSize, 1).Seconds())
	const short = 500
	s.short = append(s.short, short/s.time(b, short, wantByte, 0, 1).Seconds())
}

// time returns how long it takes to send and receive so many bytes, several times.
func (s *tcpSystem) time(b *testing.B, times int, want byte, send, receive int64) time.Duration {
	b.Helper()
	piece := make([]byte, 1<<18)
	began := time.Now()
	for range times {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			b.Fatal(err)
		}
		_, err = conn.Write([]byte{want})
		for left := send; left > 0 && err == nil; left -= int64(len(piece)) {
			_, err = conn.Write(piece)
		}
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); n != receive || err != nil {
			b.Fatalf("%d bytes of %d, %v", n, receive, err)
		}
		_ = conn.Close()
	}
	return time.Since(began)
}

// startTCPHAProxy starts a HAProxy that passes connections on.
func startTCPHAProxy(b *testing.B, upstream, option string) string {
	b.Helper()
	addr := cluster.ReservePort(b)
	file := filepath.Join(b.TempDir(), "haproxy.cfg")
	config := fmt.Sprintf(`global
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen pool
  bind %s
  %s
  server upstream %s maxconn 100
`, addr, option, upstream)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	cluster.StartProcess(b, "haproxy", "-db", "-q", "-f", file)
	if err := cluster.AwaitListening(b.Context(), addr); err != nil {
		b.Fatal(err)
	}
	return addr
}

// ratios returns a in percent of b, one by one.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = 100 * a[i] / b[i]
	}
	return out
}
