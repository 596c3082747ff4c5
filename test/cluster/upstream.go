package cluster

import (
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// ServeUpstream serves the sample upstream, which counts what is in flight, on a
// free port until the test ends.
func ServeUpstream(tb testing.TB, u *demo.Upstream) (same *demo.Upstream, url string) {
	tb.Helper()
	_, url = serve(tb, &http.Server{Handler: u})
	return u, url
}

// serveSlowly does so, and sends the header and most of each answer before it holds the request.
func serveSlowly(tb testing.TB, u *demo.Upstream, size int) (same *demo.Upstream, url string) {
	tb.Helper()
	const end = len("ok\n") // what u adds
	_, url = serve(tb, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size+end))
		_, _ = w.Write(make([]byte, size))
		_ = http.NewResponseController(w).Flush() // u sees if the client is gone
		u.ServeHTTP(w, r)
	})})
	return u, url
}

// serve serves on a free port until the test ends.
func serve(tb testing.TB, s *http.Server) (*http.Server, string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	serveOn(tb, s, l)
	return s, "http://" + l.Addr().String()
}

// serveOn serves on a listener until the test ends.
func serveOn(tb testing.TB, s *http.Server, l net.Listener) {
	tb.Helper()
	s.ReadHeaderTimeout = 10 * time.Second
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Close
	}()
	tb.Cleanup(func() { _ = s.Close(); <-done })
}
