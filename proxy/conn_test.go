package proxy

import (
	"net/http"
	"testing"

	"github.com/kgate/kgate/proxy/downstream"
)

// TestRefusedByNetHTTP: what net/http answers itself is in the log.
func TestRefusedByNetHTTP(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	logger, lines := logOf()
	g.listen(downstream.Config{Logger: logger})
	conn := g.dial()
	conn.send("GET / HTTP/1.1\r\n\r\n")
	if res := conn.response(); res.StatusCode != http.StatusBadRequest {
		t.Errorf("got %v", res.Status)
	}
	awaitLine(t, lines, "missing required Host header")
}
