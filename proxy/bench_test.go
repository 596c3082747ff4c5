package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
)

// open admits everybody.
type open struct{}

func (open) Acquire(context.Context, admission.Request) (Slot, error) { return openSlot{}, nil }

type openSlot struct{}

func (openSlot) Release()                       {}
func (openSlot) Fence() string                  { return "p/1/1" }
func (openSlot) Valid() bool                    { return true }
func (openSlot) GrantInfo() admission.GrantInfo { return admission.GrantInfo{} }

// quiet observes and forgets.
type quiet struct{}

func (quiet) Admitted(*Record) {}
func (quiet) Done(*Record)     {}

// bareProxy is what the gateway is compared with: a ReverseProxy with the same
// transport and buffers, that sets X-Forwarded-*.
func bareProxy(to *url.URL, rt http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(to)
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport:  rt,
		BufferPool: bufferPool{},
	}
}

// bufferPool lends a ReverseProxy the Handler's buffers.
type bufferPool struct{}

func (bufferPool) Get() []byte  { return buffers.Get().(*[copyBufferSize]byte)[:] }
func (bufferPool) Put(b []byte) { buffers.Put((*[copyBufferSize]byte)(b)) }

// openHandler has what a pool has by default: limits on the hold, and a fence.
func openHandler(tb testing.TB, to *url.URL, change ...func(*Config)) *Handler {
	tb.Helper()
	cfg := Config{
		Admitter: open{},
		Observer: quiet{},
		Pools: []Pool{{
			Name: "p", Upstreams: []*url.URL{to},
			HoldMax: 30 * time.Minute, HoldIdle: time.Minute, Fence: true,
		}},
		Routes: []Route{{Pool: "p", Match: Match{PathPrefix: "/"}}},
	}
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// BenchmarkProxy sends 1 KiB answers over loopback from 16 clients: a bare
// ReverseProxy and the Handler, in the same process as clients and upstream.
func BenchmarkProxy(b *testing.B) {
	body := strings.Repeat("x", 1024)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, body)
	}))
	defer upstream.Close()
	to := mustURL(b, upstream.URL)
	tr := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	defer tr.CloseIdleConnections()
	b.Run("bare", func(b *testing.B) { benchmarkServer(b, &http.Server{Handler: bareProxy(to, tr)}) })
	b.Run("kgate", func(b *testing.B) {
		s, err := downstream.NewServer(downstream.Config{Handler: openHandler(b, to)}) // which it closes
		if err != nil {
			b.Fatal(err)
		}
		benchmarkServer(b, s)
	})
}

type httpServer interface {
	Serve(l net.Listener) error
	Close() error
}

func benchmarkServer(b *testing.B, s httpServer) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	defer tr.CloseIdleConnections()
	url := "http://" + l.Addr().String() + "/x"
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				b.Error(err)
				return
			}
			res, err := tr.RoundTrip(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
}

// cannedTransport answers without a network, so that what is left is the cost
// of the proxy itself.
type cannedTransport struct{}

var cannedBody = strings.Repeat("x", 1024)

func (cannedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(cannedBody)),
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader(cannedBody)), Request: req,
	}, nil
}

// blankWriter is a ResponseWriter that keeps nothing.
type blankWriter struct{ h http.Header }

func (w *blankWriter) Header() http.Header         { return w.h }
func (w *blankWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *blankWriter) WriteHeader(int)             {}

// BenchmarkOverhead is the proxy without any network.
func BenchmarkOverhead(b *testing.B) {
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	handler := openHandler(b, to)
	handler.current.Load().balancers["p"].backends[0].requests = without{cannedTransport{}}
	for name, h := range map[string]http.Handler{"bare": bareProxy(to, cannedTransport{}), "kgate": handler} {
		b.Run(name, func(b *testing.B) {
			req := httptest.NewRequest(http.MethodGet, "http://h/x", http.NoBody)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			req = req.WithContext(ctx)
			req.Header = http.Header{"User-Agent": {"bench"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}}
			w := &blankWriter{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, req)
			}
		})
	}
}

// TestSizeOfAnExchange: the allocator has sizes of 1,024 and of 1,152 bytes, of which it needs 8
// itself. One field too many costs each request, and each that waits, 128 bytes.
func TestSizeOfAnExchange(t *testing.T) {
	if size := unsafe.Sizeof(exchange{}); size > 1016 {
		t.Errorf("an exchange has %d bytes", size)
	}
}

// BenchmarkBody moves 16 MiB over loopback, down and up: what guarding the
// upstream's connections, hold.idle included, costs a large body.
func BenchmarkBody(b *testing.B) {
	const size = 16 << 20
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = io.CopyN(w, endless{}, size)
	}))
	defer upstream.Close()
	to := mustURL(b, upstream.URL)
	tr := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	defer tr.CloseIdleConnections()
	guarded := openHandler(b, to)
	defer guarded.Close()
	for name, h := range map[string]http.Handler{"bare": bareProxy(to, tr), "kgate": guarded} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			b.Run(name+"/"+method, func(b *testing.B) { benchmarkBody(b, h, method, size) })
		}
	}
}

func benchmarkBody(b *testing.B, h http.Handler, method string, size int64) {
	s := httptest.NewServer(h)
	defer s.Close()
	b.ReportAllocs()
	b.SetBytes(size)
	for b.Loop() {
		req, err := http.NewRequest(method, s.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		if method == http.MethodPut {
			req.Body, req.ContentLength = io.NopCloser(io.LimitReader(endless{}, size)), size
		}
		res, err := s.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || method == http.MethodGet && n != size {
			b.Fatal(n, err)
		}
		_ = res.Body.Close()
	}
}
