package cluster

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/kgate/kgate"
)

// A node in a program, whose handler asks the upstream itself, and two gateways share a
// pool: at most k in the upstream, and all wait equally long.
func TestEmbeddedNode(t *testing.T) {
	t.Parallel()
	const k = 6
	window := 2 * time.Second
	if Soak() {
		window = time.Minute
	}
	x, upstream := NewUnequal(t, k)
	c := Start(t, Options{Gateways: 2, K: k, Upstream: upstream})
	n, err := kgate.Start(t.Context(), kgate.Config{
		Name: "program",
		Peers: kgate.Peers{
			Listen: "127.0.0.1:0", Join: []string{c.Gateways[0].Peer, c.Gateways[1].Peer},
		},
		Pools: []kgate.Pool{{Name: PoolName, K: k, QueueLimit: 20_000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	handler := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(at) },
		Transport: n.Transport(&http.Transport{MaxIdleConnsPerHost: k}),
	}
	_, program := serve(t, &http.Server{ConnContext: kgate.ConnContext, Handler: n.Middleware(PoolName)(handler)})

	x.Run(t, []string{program, c.Gateways[0].URL(), c.Gateways[1].URL()}, window, 0.01)
}
