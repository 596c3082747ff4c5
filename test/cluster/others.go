package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// StartNginx starts nginx before the upstream at an address, and returns where it listens.
func StartNginx(t *testing.T, upstream string) string {
	t.Helper()
	addr, dir := ReservePort(t), t.TempDir()
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s/%s; ", kind, dir, kind)
	}
	file := writeConfig(t, fmt.Sprintf(`daemon off; master_process off; pid %s/pid; error_log /dev/null;
events { worker_connections 1000; }
http { access_log off; %s
  upstream up { server %s; keepalive 8; }
  server { listen %s; location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`, dir, temp.String(), upstream, addr))
	return startOther(t, addr, "nginx", "-e", "/dev/null", "-p", dir, "-c", file)
}

// StartHAProxy does the same with HAProxy.
func StartHAProxy(t *testing.T, upstream string) string {
	t.Helper()
	addr := ReservePort(t)
	return startOther(t, addr, "haproxy", "-db", "-q", "-f", writeConfig(t, fmt.Sprintf(`defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
listen all
  bind %s
  server up %s
`, addr, upstream)))
}

func startOther(t *testing.T, addr, name string, args ...string) string {
	t.Helper()
	StartProcess(t, name, args...)
	if err := AwaitListening(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	return addr
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
