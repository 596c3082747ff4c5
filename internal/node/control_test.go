package node

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSameK: to set k to its present value begins no epoch.
func TestSameK(t *testing.T) {
	n := start(t, alone(t))
	before := n.peers.cluster.View()
	for _, c := range []struct {
		body string
		same bool
	}{{`{"k": 1}`, true}, {`{"k": 1, "was": 7}`, true}, {`{"k": 2}`, false}} {
		if status, body := post(t, n, "/api/v1/pools/p", c.body); status != http.StatusOK {
			t.Fatalf("%s: %d %s", c.body, status, body)
		}
		was, _ := before.Pool("p")
		now, _ := n.peers.cluster.View().Pool("p")
		if same := now.Epoch == was.Epoch && n.peers.cluster.View().Number == before.Number; same != c.same {
			t.Errorf("%s: pool %+v, was %+v", c.body, now, was)
		}
	}
}

// TestUnknownPool: the error for a ticket of an unknown pool names the pools.
func TestUnknownPool(t *testing.T) {
	cfg := alone(t)
	second := cfg.Pools[0]
	second.Name = "q"
	cfg.Pools = append(cfg.Pools, second)
	n := start(t, cfg)
	status, body := post(t, n, "/.kgate/tickets", `{"pool": "x"}`)
	if status != http.StatusNotFound || !strings.Contains(body, "there is no such pool; there are: p, q") {
		t.Errorf("%d %s", status, body)
	}
}

// TestLeave: the program learns once that an operator asks the gateway to leave.
func TestLeave(t *testing.T) {
	cfg, asked := alone(t), 0
	cfg.OnLeave = func() { asked++ }
	n := start(t, cfg)
	for range 2 {
		if status, body := post(t, n, "/api/v1/leave", ""); status != http.StatusAccepted {
			t.Errorf("%d %s", status, body)
		}
	}
	if asked != 1 {
		t.Errorf("told %d times", asked)
	}
}

func post(t *testing.T, n *Node, path, body string) (status int, answer string) {
	t.Helper()
	server := httptest.NewServer(n.Admin())
	defer server.Close()
	res, err := server.Client().Post(server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
