package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// patientUpstream answers a request when the test says so, and at once below
// /quick.
func patientUpstream(t *testing.T) (url string, answer func()) {
	t.Helper()
	may := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/quick") {
			return
		}
		select {
		case <-may:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	ended := false
	answer = func() {
		if !ended {
			close(may)
		}
		ended = true
	}
	t.Cleanup(answer)
	return s.URL, answer
}

// client asks at a gateway and waits for the answer.
type client struct {
	leave context.CancelFunc
	done  chan string // the status, or what went wrong
}

func ask(t *testing.T, g *cluster.Gateway, path string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &client{leave: cancel, done: make(chan string, 1)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(g.URL(), "/")+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	go func() {
		res, err := transport.RoundTrip(req)
		if err != nil {
			c.done <- err.Error()
			return
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		c.done <- fmt.Sprint(res.StatusCode, " ", res.Header.Get("Kgate-Refusal"))
	}()
	return c
}
