package transport

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// BenchmarkLink sends messages of the usual size back and forth over loopback,
// one op being one message in one direction. cpu-us/op is the processor time
// of both ends.
func BenchmarkLink(b *testing.B) {
	pki := newPKI(b)
	for _, secure := range []bool{false, true} {
		for _, inflight := range []int{1, 256} {
			name := fmt.Sprintf("tls=%v/inflight=%d", secure, inflight)
			var config *tls.Config
			if secure {
				config = pki.peer(b)
			}
			b.Run(name, func(b *testing.B) { benchmarkLink(b, config, inflight) })
		}
	}
}

func benchmarkLink(b *testing.B, config *tls.Config, inflight int) {
	var left atomic.Int64
	done := make(chan struct{})
	var one, two *Transport
	times := make([]time.Duration, 0, 1<<16)
	var sent time.Time
	m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Number: 123456, Counter: 7, Free: kmutex.TokenSet{1<<63 + 5}}
	deliverOne := deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
		if inflight == 1 {
			if len(times) < cap(times) {
				times = append(times, time.Since(sent))
			}
			sent = time.Now()
		}
		switch n := left.Add(-2); {
		case n > 0:
			return one.Send(from, pool, m)
		case n > -2:
			close(done)
		}
		return nil
	})
	one = listen(b, Config{Handler: deliverOne, TLS: config})
	two = listen(b, Config{TLS: config, Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
		return two.Send(from, pool, m)
	})})
	join(one, two)
	waitUp(b, one, two)
	b.ReportAllocs()
	b.ResetTimer()
	left.Store(int64(b.N))
	cpu := cpuTime()
	sent = time.Now()
	for range min(inflight, (b.N+1)/2) {
		if err := one.Send(2, "downloads", m); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-us/op")
	if inflight == 1 {
		b.ReportMetric(float64(quantile(times, .5).Microseconds()), "p50-us/roundtrip")
		b.ReportMetric(float64(quantile(times, .99).Microseconds()), "p99-us/roundtrip")
	} else {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEncode and BenchmarkDecode are the codec alone.
func BenchmarkEncode(b *testing.B) {
	for _, m := range benchMessages() {
		b.Run(m.Kind.String(), func(b *testing.B) {
			buf := make([]byte, 0, 1<<10)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := appendMessage(buf, uint64(i)+1, "downloads", &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range benchMessages() {
		b.Run(m.Kind.String(), func(b *testing.B) {
			buf, err := appendMessage(nil, 12345, "downloads", &m)
			if err != nil {
				b.Fatal(err)
			}
			pools := make(names)
			var f frame
			b.ReportAllocs()
			for b.Loop() {
				if err := decodeFrame(buf[lengthSize:], pools, &f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchMessages() []kmutex.Message {
	return []kmutex.Message{
		{Kind: kmutex.KindRequest, Epoch: 3, Origin: 70, Hops: 2},
		{Kind: kmutex.KindBaton, Epoch: 3, Number: 123456, Counter: 7, Free: kmutex.NewTokenSet(8)},
		{Kind: kmutex.KindToken, Epoch: 3, Token: 5, Number: 123456},
	}
}
