package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// Gateway is one gateway process and its addresses.
type Gateway struct {
	*Process
	Name string
	// HTTP, Admin and Peer are the addresses it listens on.
	HTTP, Admin, Peer string
	// HTTPS is where it serves clients over TLS, if it does.
	HTTPS string

	command []string // to start it again
	client  *http.Client
}

// dialFunc opens connections.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// newClient returns what asks gateways for their state. Connections are not
// kept: tests count goroutines.
func newClient(dial dialFunc) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
}

// launch starts a gateway and waits until it listens.
func launch(tb testing.TB, name string, command, flags []string, dial dialFunc) *Gateway {
	tb.Helper()
	g := &Gateway{
		Process: StartProcess(tb, command[0], slices.Concat(command[1:], flags)...),
		Name:    name, command: command, client: newClient(dial),
	}
	tb.Cleanup(func() {
		if stray, found := g.Log.Stray(); found {
			tb.Errorf("%s writes a line past its log: %s", name, stray)
		}
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", name, g.Log.Tail(40))
		}
	})
	r, err := g.AwaitRecord("listening")
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	g.HTTP, g.Admin, g.Peer = r.Text("http"), r.Text("admin"), r.Text("peer")
	if r := g.Log.Records("listening for clients over TLS"); len(r) > 0 {
		g.HTTPS = r[0].Text("https")
	}
	return g
}

// AwaitReady waits until the gateway admits requests.
func (g *Gateway) AwaitReady(ctx context.Context) error {
	return Await(ctx, func() error {
		body, err := g.get(ctx, "/readyz")
		if err != nil {
			return fmt.Errorf("%s is not ready: %s: %w", g.Name, strings.TrimSpace(string(body)), err)
		}
		return nil
	})
}

// get returns the body of an answer of the admin address, also with an error if
// the answer is not 200.
func (g *Gateway) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return body, err
}

// Status returns what the gateway says of itself and its cluster.
func (g *Gateway) Status(ctx context.Context) (*admin.Status, error) {
	body, err := g.get(ctx, "/api/v1/status")
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", g.Name, err)
	}
	s := new(admin.Status)
	return s, json.Unmarshal(body, s)
}

// Metrics scrapes the gateway.
func (g *Gateway) Metrics(ctx context.Context) (Metrics, error) {
	body, err := g.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", g.Name, err)
	}
	return parseMetrics(strings.NewReader(string(body)))
}

// URL returns the address at which clients reach the gateway.
func (g *Gateway) URL() string { return "http://" + g.HTTP + "/" }

// Span waits, while a test looks at what happens, or until the test ends.
func Span(tb testing.TB, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-tb.Context().Done():
	}
}

// AwaitListening waits until somebody listens at addr.
func AwaitListening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Await(ctx, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// AwaitPool waits until a gateway's pool is as wanted.
func (g *Gateway) AwaitPool(ctx context.Context, pool string, wanted func(admin.Pool) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Await(ctx, func() error {
		s, err := g.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range s.Pools {
			if p.Name == pool && wanted(p) {
				return nil
			}
		}
		return fmt.Errorf("pool %s is not as wanted: %+v", pool, s.Pools)
	})
}

// Await tries until it works, and returns the last error if ctx ends first.
// Other processes give no sign to wait for, so it asks every few milliseconds, and less often
// the longer it takes: what is asked needs a processor, too.
func Await(ctx context.Context, try func() error) error {
	var last error
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // what ctx's end has caused says nothing
		}
		select {
		case <-time.After(min(max(time.Since(began)/10, 5*time.Millisecond), time.Second/2)):
		case <-ctx.Done():
			return errors.Join(last, context.Cause(ctx))
		}
	}
}
