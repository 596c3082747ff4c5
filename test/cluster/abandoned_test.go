package cluster

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/replication"
)

// TestAbandonedTicket has nobody renew a ticket, and kills the gateway that has it every few seconds:
// the same one, which reads it from its disk again, or one after the other. Its slot is free before long.
func TestAbandonedTicket(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, gateways := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d gateways", gateways), func(t *testing.T) {
			t.Parallel()
			abandon(t, gateways)
		})
	}
}

func abandon(t *testing.T, gateways int) {
	const (
		lease, ttl = time.Second, 6 * time.Second
		every      = 4 * time.Second // longer than a lease, shorter than a time to live
		longest    = time.Minute
	)
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: gateways, K: 1, Upstream: url, Lease: lease, Durable: true, QueueTimeout: longest})
	o := newOffice(t, c.Gateways)
	tk := o.request(t, PoolName, ttl)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error { return o.granted(&tk) }); err != nil {
		t.Fatal(err)
	}
	i, err := c.owner(ctx, tk.ID)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for kills := 1; ; kills++ {
		if time.Since(began) > longest {
			t.Fatalf("after %v and %d kills nobody else has got the slot", time.Since(began), kills)
		}
		next, err := c.successor(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Gateways[i].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-c.Gateways[i].Done()
		c.Restart(t, i)
		ready, cancel := context.WithTimeout(t.Context(), patience)
		if err := c.Gateways[i].AwaitReady(ready); err != nil {
			t.Fatal(err)
		}
		cancel()
		i = next
		// Who asks now is next in line, until the next kill.
		asks, cancel := context.WithTimeout(t.Context(), every)
		req, err := http.NewRequestWithContext(asks, http.MethodGet, c.Gateways[i].URL(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		cancel()
		if err == nil && res.StatusCode == http.StatusOK {
			t.Logf("after %v and %d kills another request has the slot", time.Since(began).Round(100*time.Millisecond), kills)
			return
		}
	}
}

// owner returns the place of the gateway that has taken a ticket in.
func (c *Cluster) owner(ctx context.Context, id string) (int, error) {
	node, err := replication.ParseID(id)
	if err != nil {
		return 0, err
	}
	for i, g := range c.Gateways {
		if s, err := g.Status(ctx); err == nil && s.Gateway.Node == uint64(node) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("nobody has taken ticket %s in", id)
}

// successor returns the place of the gateway that takes over what one has when it is lost: itself
// if there is no other.
func (c *Cluster) successor(ctx context.Context, i int) (int, error) {
	s, err := c.Gateways[i].Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range s.Cluster.Members {
		for n, g := range c.Gateways {
			if m.Self && len(m.Copies) > 0 && m.Copies[0] == g.Name {
				return n, nil
			}
		}
	}
	return i, nil
}
