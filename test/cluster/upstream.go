package cluster

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// ServeUpstream serves the sample upstream, which counts what is in flight, on a
// free port until the test ends.
func ServeUpstream(tb testing.TB, cfg demo.UpstreamConfig) (u *demo.Upstream, url string) {
	tb.Helper()
	u, err := demo.NewUpstream(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	_, url = serve(tb, &http.Server{Handler: u})
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
