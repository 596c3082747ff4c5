package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// broken listens and breaks off each connection.
func broken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestRemoteGoesOn: what only reads goes on to the next gateway when one breaks off, what
// changes something does not: it may have been done.
func TestRemoteGoesOn(t *testing.T) {
	bad := broken(t)
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"version": "v7"}`))
	}))
	t.Cleanup(good.Close)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`hello`))
	}))
	t.Cleanup(other.Close)
	r := func(bases ...string) *remote {
		r, err := adminAddrs{Admin: bases}.remote("")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if s, _, err := r(bad, good.URL).status(t.Context()); err != nil || s.Version != "v7" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := r(bad, good.URL).post(t.Context(), "/", nil); err == nil || errors.Is(err, errNoAnswer) {
		t.Errorf("a change went on: %v", err)
	}
	if _, _, err := r(bad).status(t.Context()); !errors.Is(err, errNoAnswer) || errors.Is(err, errNoListener) {
		t.Error(err)
	}
	if _, _, err := r("http://127.0.0.1:1").status(t.Context()); !errors.Is(err, errNoListener) || !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	if _, _, err := r("http://127.0.0.1:1", other.URL).status(t.Context()); err == nil || !strings.HasPrefix(err.Error(), strings.TrimPrefix(other.URL, "http://")) {
		t.Errorf("somebody else is blamed: %v", err)
	}
}

// TestWordsOfOthersAreShown: what somebody has called a gateway tells the terminal nothing.
func TestWordsOfOthersAreShown(t *testing.T) {
	status := http.StatusOK
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"version": "a\x1b[2J\u009b2J\x7f\r\b\u202eb\\u001bc\n\td", "detail": "no\x1b]0;x\a"})
	}))
	t.Cleanup(evil.Close)
	r, err := adminAddrs{Admin: []string{evil.URL}}.remote("")
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := r.status(t.Context())
	if want := "a\ufffd[2J\ufffd2J\ufffd\ufffd\ufffd\ufffdb\\ufffdc\n\td"; err != nil || s.Version != want {
		t.Errorf("%q, want %q, error %v", s.Version, want, err)
	}
	status = http.StatusBadRequest
	if _, _, err := r.status(t.Context()); err == nil || !strings.Contains(err.Error(), "no\ufffd]0;x\ufffd") {
		t.Errorf("%q", err)
	}
}
