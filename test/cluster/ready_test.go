package cluster

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
)

// TestReadyIsServed: a gateway that logs "ready" serves the very next request of each of
// its pools, be it one of those that begin a cluster, one that joins it, or one that comes
// back.
func TestReadyIsServed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real gateways")
	}
	t.Parallel()
	_, url := serve(t, &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	c := &Cluster{dir: memoryDir(t), opt: Options{K: 3, Upstream: url, Durable: true, Pools: []Pool{
		{Name: "second", K: 1, Upstream: url}, {Name: "third", K: 40, Upstream: url},
	}}.withDefaults()}
	endTogether(t, c)
	for range c.opt.Gateways {
		c.launch(t, c.opt.Gateways)
	}
	served(t, c.Gateways...)
	served(t, c.Launch(t))
	if _, err := c.Gateways[0].Stop(); err != nil {
		t.Fatal(err)
	}
	served(t, c.Restart(t, 0))
}

// served sends each gateway a request for each pool as soon as it logs that it is ready.
func served(t *testing.T, gateways ...*Gateway) {
	t.Helper()
	var wg sync.WaitGroup
	for _, g := range gateways {
		wg.Go(func() {
			if _, err := g.AwaitRecord("ready"); err != nil {
				t.Error(err)
				return
			}
			for _, pool := range []string{"", "second/", "third/"} {
				wg.Go(func() {
					if err := asked(g.URL() + pool); err != nil {
						t.Errorf("%s is ready, but a request for /%s: %v", g.Name, pool, err)
					}
				})
			}
		})
	}
	wg.Wait()
}

// asked returns an error if a request is not answered with 200.
func asked(url string) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return err
}
