package cluster

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// expectOutside checks that a stranger does not get in and says why, while the
// cluster keeps its members.
func expectOutside(t *testing.T, c *Cluster, stranger *Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := stranger.AwaitReady(ctx)
	if err == nil {
		t.Errorf("%s got in", stranger.Name)
		return
	}
	t.Logf("%v", err)
	res, err := stranger.client.Get(stranger.URL())
	if err != nil {
		t.Error(err)
	} else {
		_ = res.Body.Close()
		if why := res.Header.Get("Kgate-Refusal"); res.StatusCode != http.StatusServiceUnavailable || why != "isolated" {
			t.Errorf("%s answers %s, refusal %q", stranger.Name, res.Status, why)
		}
	}
	for _, g := range c.Gateways {
		s, err := g.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.Cluster.Members); n != len(c.Gateways) {
			t.Errorf("%s sees %d members", g.Name, n)
		}
	}
}

// foreigner opens a TLS connection with a certificate of another authority.
func foreigner(t *testing.T, addr string) {
	t.Helper()
	files := NewTLSFiles(t)
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}})
	if err != nil {
		return // refused at once
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a foreign certificate is accepted")
	}
}

// TestMutualTLS has gateways that talk TLS serve a load, while others try to
// join without TLS or with a foreign certificate.
func TestMutualTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 3
	u, url := ServeUpstream(t, &demo.Upstream{Hold: 50 * time.Millisecond})
	c := Start(t, Options{K: k, Upstream: url, TLS: NewTLSFiles(t)})
	stop := background(t, c, 30)
	expectOutside(t, c, c.LaunchStranger(t, "plaintext", func(o *Options) { o.TLS = nil }))
	expectOutside(t, c, c.LaunchStranger(t, "foreign", func(o *Options) { o.TLS = NewTLSFiles(t) }))
	for _, g := range c.Gateways {
		say(t, g.Peer, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		foreigner(t, g.Peer)
	}
	load := stop()
	if load.Overall.Errors > 0 || load.Overall.Count == 0 || u.Stats().Max != k {
		t.Errorf("%d answers, failed %v, most in flight %d, k is %d", load.Overall.Count, load.Overall.Failed, u.Stats().Max, k)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Error(err)
	}
	sum, err := c.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	plaintext, foreign := sum.Sum("kgate_peer_refused_total", `cause="plaintext_on_tls_port"`), sum.Sum("kgate_peer_refused_total", `cause="certificate"`)
	t.Logf("%d answers; refused: %v in plaintext, %v with a foreign certificate", load.Overall.Count, plaintext, foreign)
	if plaintext < float64(len(c.Gateways)) || foreign == 0 {
		t.Error("refusals are not counted")
	}
}
