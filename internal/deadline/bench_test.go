package deadline

import (
	"net"
	"testing"
	"time"
)

// BenchmarkSet sets a deadline and takes it back, as for each request of a connection.
func BenchmarkSet(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	w := new(Writer)
	for name, set := range map[string]func(time.Time) error{
		"runtime": conn.SetWriteDeadline,
		"lazy":    func(t time.Time) error { return w.Set(conn, t) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := set(time.Now().Add(time.Minute)); err != nil {
					b.Fatal(err)
				}
				if err := set(time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
