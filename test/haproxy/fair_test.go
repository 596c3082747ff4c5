package haproxy

import (
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// Three HAProxys with unequal numbers of clients: at most k in the upstream, and
// all wait equally long.
func TestFair(t *testing.T) {
	const k = 6
	window, within := 8*time.Second, 0.03
	if soak {
		window, within = time.Minute, 0.01
	}
	x, upstream := cluster.NewUnequal(t, k)
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Name: "fair"})
	urls := make([]string, 3)
	for i, h := range fleet(t, c, options{upstream: upstream, ttl: 10, wait: 60}) {
		urls[i] = h.url
	}
	x.Run(t, urls, window, within)
	whole(t, c, 5*time.Second)
}
