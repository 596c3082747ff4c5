package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
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
	one = listen(b, Config{Name: "gw-1", Handler: deliverOne, TLS: config})
	two = listen(b, Config{Name: "gw-2", TLS: config, Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error {
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
			for b.Loop() {
				if _, err := appendMessage(buf, "downloads", &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range benchMessages() {
		b.Run(m.Kind.String(), func(b *testing.B) {
			buf, err := appendMessage(nil, "downloads", &m)
			if err != nil {
				b.Fatal(err)
			}
			pools := make(names)
			var got kmutex.Message
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeMessage(buf, pools, &got); err != nil {
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

// BenchmarkCallBesidePayload is a call, as one that renews a lease, and a message back and
// forth, while payloads of 64 MiB go the same way one after the other.
func BenchmarkCallBesidePayload(b *testing.B) {
	pki := newPKI(b)
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprintf("payload=%v", beside), func(b *testing.B) { benchmarkCall(b, pki, beside) })
	}
}

func benchmarkCall(b *testing.B, pki *pki, beside bool) {
	back := make(chan struct{}, 1)
	one := listen(b, Config{Name: "gw-1", TLS: pki.peer(b), Handler: deliverFunc(func(kmutex.Node, string, kmutex.Message) error {
		back <- struct{}{}
		return nil
	})})
	var two *Transport
	two = listen(b, Config{
		Name: "gw-2", TLS: pki.peer(b),
		Receive: func(kmutex.Node, string, []byte) error { return nil },
		Answer:  func(context.Context, Caller, string, []byte) ([]byte, error) { return nil, nil },
		Handler: deliverFunc(func(from kmutex.Node, pool string, m kmutex.Message) error { return two.SendNow(from, pool, m) }),
	})
	join(one, two)
	waitUp(b, one, two)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	payloads := 0
	if beside {
		payload := make([]byte, maxPayload)
		wg.Go(func() {
			for one.SendPayload(ctx, 2, "long", payload) == nil {
				payloads++
			}
		})
	}
	var calls, messages []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := one.Call(ctx, to(two), Question{Name: "renew"}); err != nil {
			b.Fatal(err)
		}
		called := time.Now()
		if err := one.SendNow(2, "downloads", numbered(1)); err != nil {
			b.Fatal(err)
		}
		<-back
		calls, messages = append(calls, called.Sub(began)), append(messages, time.Since(called))
	}
	cancel()
	wg.Wait()
	for name, times := range map[string][]time.Duration{"call": calls, "message": messages} {
		for _, q := range []float64{.5, .99, 1} {
			b.ReportMetric(float64(quantile(times, q).Microseconds()), fmt.Sprintf("p%v-us/%s", 100*q, name))
		}
	}
	if beside {
		b.ReportMetric(float64(payloads)*maxPayload/b.Elapsed().Seconds()/(1<<20), "MiB/s")
	}
}
