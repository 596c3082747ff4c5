package abuse

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// from returns a client whose connections come from a loopback address of its
// own.
func from(t *testing.T, addr string) *http.Client {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a loopback network where every address is the machine's")
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 2000}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// turnstile is an upstream that holds each request for a while.
type turnstile struct {
	hold time.Duration
}

func (u *turnstile) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(u.hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// ask asks once.
func ask(ctx context.Context, c *http.Client, url string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, nil
}
