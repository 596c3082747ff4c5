package proxy

import (
	"net/http"
	"testing"

	"github.com/kgate/kgate/proxy/downstream"
)

// TestRefusedIsLogged: what is answered before there is a request is in the log.
func TestRefusedIsLogged(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(echoRequest))
	logger, lines := logOf()
	g.listen(downstream.Config{Logger: logger})
	conn := g.dial()
	conn.send("GET / HTTP/1.1\r\n\r\n")
	if res := conn.response(); res.StatusCode != http.StatusBadRequest {
		t.Errorf("got %v", res.Status)
	}
	awaitLine(t, lines, "there is no Host")
}
