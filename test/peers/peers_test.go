package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// k of the gateways' pool.
const k = 4

// Addresses, all of them this machine's, by which gateways tell apart who connects.
const (
	proxyProtocolPeer = "127.0.0.2" // must send a PROXY header
	trustedProxy      = "127.0.0.3" // its X-Forwarded-For is believed
	somebody          = "127.0.0.9" // a client
)

// world is three gateways and what is around them.
type world struct {
	*cluster.Cluster
	ca    string // PEM file
	pool  *tls.Config
	judge *cluster.Judge
	body  string // a file
}

// TestPeers runs all that is in front of, and behind, the same three gateways.
func TestPeers(t *testing.T) {
	files := cluster.NewTLSFiles(t)
	judge, _, upstream := cluster.NewJudge(t, newUpstream())
	w := &world{judge: judge, ca: files.CA, body: filepath.Join(t.TempDir(), "body")}
	if err := os.WriteFile(w.body, pattern, 0o600); err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	w.pool = &tls.Config{RootCAs: roots}
	grpcUpstream := startGRPC(t)
	behind := startNginxBehind(t)
	w.Cluster = cluster.Start(t, cluster.Options{
		K: k, Upstream: upstream, ClientTLS: files, Name: "peer",
		Listen: "proxy_protocol: [" + proxyProtocolPeer + "/32]", Trusted: []string{trustedProxy + "/32"},
		Pools: []cluster.Pool{
			{Name: "grpc", K: k, Upstream: grpcUpstream},
			{Name: "nginx", K: k, Upstream: "http://" + behind},
		},
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Curl", testCurl},
		{"Nghttp", testNghttp},
		{"GoClient", testGoClient},
		{"Ranges", testRanges},
		{"WebSocket", testWebSocket},
		{"Events", testEvents},
		{"GRPC", testGRPC},
		{"H2load", testH2load},
		{"HAProxyInFront", testHAProxyInFront},
		{"NginxInFront", testNginxInFront},
		{"NginxBehind", testNginxBehind},
		{"Large", testLarge},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.AwaitWhole(ctx); err != nil {
		t.Errorf("a slot is lost: %v", err)
	}
	if _, most, total := judge.Counts(); most > k {
		t.Errorf("%d requests in flight at the upstream, k is %d", most, k)
	} else {
		t.Logf("%d requests at the upstream, at most %d at once, k is %d", total, most, k)
	}
}

// mode is a way for clients to speak to a gateway.
type mode struct {
	name  string
	tls   bool
	http2 bool
}

var modes = []mode{
	{"HTTP/1.1", false, false},
	{"HTTP/2 in the clear", false, true},
	{"HTTP/1.1 over TLS", true, false},
	{"HTTP/2 over TLS", true, true},
}

// url returns where a gateway is reached in this way.
func (m mode) url(g *cluster.Gateway, path string) string {
	if m.tls {
		return "https://" + g.HTTPS + path
	}
	return "http://" + g.HTTP + path
}

// client returns a client that speaks in this way.
func (w *world) client(t *testing.T, m mode) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: w.pool.Clone(), Protocols: new(http.Protocols), DisableCompression: true}
	switch {
	case !m.http2:
		tr.Protocols.SetHTTP1(true)
	case m.tls:
		tr.Protocols.SetHTTP2(true)
	default:
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// from returns a client whose connections come from an address of its own.
func from(t *testing.T, addr string) *http.Client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
