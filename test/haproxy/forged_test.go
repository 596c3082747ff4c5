package haproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/forged"
)

// spellings of /downloads/x, as one server or another reads them.
var spellings = []string{
	"/downloads/x", "//downloads/x", "/downloads%2fx", "/./downloads/x", "/%64ownloads/x", "/a/../downloads/x", "/a/%2e%2E/downloads/x", "/;/downloads/x",
	"/downloads;a/x", "/\\downloads/x", "/a/..;/downloads/x", "http://a//downloads/x", "/DOWNLOADS/x", "/%5cdownloads/x", "/%2fdownloads/x", "/%2e/downloads/x",
	"/downloads//x", "/downloads./x", "/DOWNLO~1/x", "/a/..", "/health%2f..%2fdownloads/x", "/health/..%2Fdownloads/x", "/health;/../downloads/x",
}

// TestNoPathWithoutSlot: by the example's rule, a request has a slot however its client
// writes the path.
func TestNoPathWithoutSlot(t *testing.T) {
	came := make(chan string, 1)
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { came <- r.Header.Get("Kgate-Fence") }))
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: upstream, Name: "paths"})
	h := fleet(t, c, options{upstream: upstream, ttl: 10, wait: 5, paths: true})[0]
	ask := func(path string) (status int, fence string) {
		status = raw(t, h, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		select {
		case fence = <-came:
		default:
			fence = "did not come"
		}
		return status, fence
	}
	for _, path := range spellings {
		if status, fence := ask(path); fence == "" || status == http.StatusOK && fence == "did not come" || path == spellings[0] && status != http.StatusOK {
			t.Errorf("%s: status %d, at the upstream with the fence %q", path, status, fence)
		}
	}
	for _, path := range []string{"/", "/health", "/a.b/c-d_e/", "/a?b=//downloads/"} {
		if status, fence := ask(path); status != http.StatusOK || fence != "" {
			t.Errorf("%s needs no slot: status %d, fence %q", path, status, fence)
		}
	}
	whole(t, c, 5*time.Second)
}

// TestForged: a client says nothing in kgate's name in its header, with a slot or without.
func TestForged(t *testing.T) {
	came := make(chan []string, 1)
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- forged.Fields(r.Header)
	}))
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: upstream, Name: "forged"})
	h := fleet(t, c, options{upstream: upstream, ttl: 10, wait: 5, paths: true})[0]
	for path, fences := range map[string]int{"/downloads/x": 1, "/health": 0} {
		if status := raw(t, h, forged.Request(path)); status != 200 {
			t.Errorf("%s: status %d", path, status)
			continue
		}
		if said := <-came; len(said) != fences || strings.Contains(fmt.Sprint(said), forged.Fence) {
			t.Errorf("%s: the upstream reads %q, want %d fences of ours", path, said, fences)
		}
	}
}

// TestOneRequestOnly: nothing passes behind a request but WebSocket and its like, with a slot
// or without. An upstream that would agree to any protocol judges.
func TestOneRequestOnly(t *testing.T) {
	came := make(chan *http.Request, 1)
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}))
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: upstream, Name: "one"})
	h := fleet(t, c, options{upstream: upstream, ttl: 10, wait: 5, paths: true})[0]
	// atUpstream returns the answer's status, and the request as it came; nil: it did not.
	atUpstream := func(request string) (status int, r *http.Request) {
		status = raw(t, h, request)
		select {
		case r = <-came:
		default:
		}
		return status, r
	}
	for _, path := range []string{"/free", "/downloads/x"} {
		for upgrade, passes := range map[string]bool{
			"test": true, "h2c": false, "H2C": false, "h2c/1": false, "h2": false, "TLS/1.2": false, "HTTP/2.0": false, "test, h2c": false, "test\r\nUpgrade: h2c": false,
		} {
			status, r := atUpstream("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, KGATE-fence\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: " + upgrade + "\r\n\r\n")
			switch {
			case r == nil:
				t.Errorf("%s, Upgrade: %q: status %d, did not come", path, upgrade, status)
			case passes != (status == http.StatusSwitchingProtocols), !passes && len(r.Header["Upgrade"])+len(r.Header["Http2-Settings"]) > 0:
				t.Errorf("%s, Upgrade: %q: status %d, came with %v", path, upgrade, status, r.Header)
			case strings.Contains(strings.ToLower(fmt.Sprint(r.Header["Connection"])), "kgate"):
				t.Errorf("%s: a proxy behind would drop the fence: Connection %q", path, r.Header["Connection"])
			}
		}
	}
	if status, r := atUpstream("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"); r != nil || status != http.StatusNotImplemented {
		t.Errorf("CONNECT: status %d, came: %v", status, r != nil)
	}
	whole(t, c, 5*time.Second)
}

// raw sends a request as it is, and returns the status of its answer.
func raw(t *testing.T, h *haproxy, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(h.url, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
