package prometheus

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// site is an upstream that holds requests as long as they say, in the parameter
// hold, and that can be away for a while.
type site struct {
	addr    string
	handler http.Handler
	listen  func() (net.Listener, error) // nil: on loopback, at addr
	close   func()
}

// newSite serves a site. It ends with the test.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{addr: cluster.ReservePort(t), handler: http.HandlerFunc(answer)}
	s.serve(t)
	t.Cleanup(func() { s.close() })
	return s
}

// URL of the site.
func (s *site) URL() string { return "http://" + s.addr }

func (s *site) serve(t *testing.T) {
	t.Helper()
	listen := s.listen
	if listen == nil {
		listen = func() (net.Listener, error) { return net.Listen("tcp", s.addr) }
	}
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: s.handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	s.close = func() { _ = server.Close(); <-done }
}

func answer(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("hold") == "error" {
		http.Error(w, "on demand", http.StatusInternalServerError)
		return
	}
	hold, err := time.ParseDuration(r.FormValue("hold"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}
