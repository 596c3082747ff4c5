package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// seen returns the header of a request as the upstream got it. The client claims
// to be somebody else.
func seen(t *testing.T, c *http.Client, url string) http.Header {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "6.6.6.6")
	req.Header.Set("Forwarded", "for=6.6.6.6")
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var h http.Header
	if err := json.NewDecoder(res.Body).Decode(&h); err != nil {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return h
}

// testHAProxyInFront: HAProxy passes TCP connections on, with a PROXY header; the
// upstream gets to know the client's address. A connection from there without
// that header is no client's.
func testHAProxyInFront(t *testing.T, w *world) {
	cluster.Need(t, "haproxy", "haproxy")
	for _, version := range []string{"send-proxy", "send-proxy-v2"} {
		addr := cluster.ReservePort(t)
		var servers strings.Builder
		for i, g := range w.Gateways {
			fmt.Fprintf(&servers, "  server gw%d %s %s check source %s\n", i, g.HTTP, version, proxyProtocolPeer)
		}
		cluster.StartProcess(t, "haproxy", "-db", "-q", "-f", writeFile(t, "haproxy.cfg", fmt.Sprintf(`global
  maxconn 100
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen kgate
  bind %s
%s`, addr, servers.String())))
		if err := cluster.AwaitListening(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		h := seen(t, from(t, somebody), "http://"+addr+"/headers")
		if got := h.Get("X-Forwarded-For"); got != somebody {
			t.Errorf("%s: X-Forwarded-For %q, want %q", version, got, somebody)
		}
		if got, want := h.Get("Forwarded"), "for="+somebody+`;host="`+addr+`";proto=http`; got != want {
			t.Errorf("%s: Forwarded %q, want %q", version, got, want)
		}
	}
	res, err := from(t, proxyProtocolPeer).Get("http://" + w.Gateways[0].HTTP + "/headers")
	if err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("a connection without a PROXY header was served, from an address that owes one")
		}
	}
}

// nginx starts one with these lines of its http part.
func nginx(t *testing.T, addr string, connections int, lines string) *cluster.Process {
	t.Helper()
	dir := t.TempDir()
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "  %s_temp_path %s/%s;\n", kind, dir, kind)
	}
	config := fmt.Sprintf(`daemon off;
master_process off;
pid %s/pid;
error_log stderr;
events { worker_connections %d; }
http {
  access_log off;
%s%s
}
`, dir, connections, temp.String(), lines)
	p := cluster.StartProcess(t, "nginx", "-e", "stderr", "-p", dir, "-c", writeFile(t, "nginx.conf", config))
	if err := cluster.AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	return p
}

// testNginxInFront: nginx speaks HTTP to the gateways and says in X-Forwarded-For
// for whom; it is believed, and its client is not.
func testNginxInFront(t *testing.T, w *world) {
	cluster.Need(t, "nginx", "nginx-light")
	addr := cluster.ReservePort(t)
	var servers strings.Builder
	for _, g := range w.Gateways {
		fmt.Fprintf(&servers, "server %s; ", g.HTTP)
	}
	nginx(t, addr, 200, fmt.Sprintf(`
  upstream kgate { %s keepalive 8; }
  server {
    listen %s;
    location / {
      proxy_pass http://kgate;
      proxy_bind %s;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto https;
      proxy_set_header Forwarded "";
      proxy_request_buffering off;
      proxy_buffering off;
      client_max_body_size 0;
    }
  }`, servers.String(), addr, trustedProxy))
	c := from(t, somebody)
	for range 6 {
		h := seen(t, c, "http://"+addr+"/headers")
		for name, want := range map[string]string{
			"X-Forwarded-For":   somebody + ", " + trustedProxy,
			"Forwarded":         "for=" + somebody + ", for=" + trustedProxy + `;host="` + addr + `";proto=http`,
			"X-Forwarded-Proto": "https",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s %q, want %q", name, got, want)
			}
		}
	}
	res, err := c.Post("http://"+addr+"/drain", "", &stream{left: fileSize})
	if err != nil {
		t.Fatal(err)
	}
	bytes, crc, _ := sum(&stream{left: fileSize})
	checkText(t, res, account(bytes, crc))
}

// startNginxBehind starts the upstream of a pool, if it can, and returns its
// address.
func startNginxBehind(t *testing.T) string {
	addr := cluster.ReservePort(t)
	if _, err := exec.LookPath("nginx"); err != nil {
		return addr
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "nginx"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nginx", "file"), pattern, 0o600); err != nil {
		t.Fatal(err)
	}
	nginx(t, addr, 200, fmt.Sprintf(`
  sendfile on;
  server {
    listen %s;
    root %s;
    keepalive_requests 3;
    location /nginx/headers { return 200 "$http_x_forwarded_for $http_via $http_host"; }
  }`, addr, dir))
	return addr
}

// testNginxBehind: an nginx is the upstream.
func testNginxBehind(t *testing.T, w *world) {
	cluster.Need(t, "nginx", "nginx-light")
	for i, m := range modes {
		g := w.Gateways[i%3]
		c := w.client(t, m)
		for range 5 { // more than nginx serves over one connection
			checkRange(t, c, m.url(g, "/nginx/file"), 1000, 2_000_000)
		}
		res, err := c.Get(m.url(g, "/nginx/headers"))
		if err != nil {
			t.Fatal(err)
		}
		proto, host := "1.1", g.HTTP
		if m.http2 {
			proto = "2.0"
		}
		if m.tls {
			host = g.HTTPS
		}
		checkText(t, res, "127.0.0.1 "+proto+" kgate "+host)
		if res, err = c.Get(m.url(g, "/nginx/missing")); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", m.name, res.Status)
		}
	}
}
