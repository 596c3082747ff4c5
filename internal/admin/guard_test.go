package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func withLocalAddr(r *http.Request, addr net.Addr) context.Context {
	return context.WithValue(r.Context(), http.LocalAddrContextKey, addr)
}

func TestIsLocalName(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:9080": true, "Localhost.": true, "gw.localhost": true,
		"127.0.0.1": true, "127.0.0.1:9080": true, "[::1]:9080": true, "[::1]": true, "10.0.0.1": true,
		"": false, ":9080": false, "localhost.example.com": false, "127.0.0.1.nip.io": false,
		"notlocalhost": false, "0x7f000001": false, "127.1": false, "[::1": true, "evil.com:80:80": false,
	} {
		if got := isLocalName(host); got != want {
			t.Errorf("isLocalName(%q) = %v", host, got)
		}
	}
}

// TestCheckHost: on every TCP address, a name with a dot is refused unless it is listed.
func TestCheckHost(t *testing.T) {
	h := CheckHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), []string{"gw-1.example.com"})
	here := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9080}
	for _, c := range []struct {
		host string
		at   net.Addr
		want int
	}{
		{"10.0.0.1:9080", here, 200},
		{"[fd00::1]:9080", here, 200},
		{"gw-1:9080", here, 200},
		{"localhost", here, 200},
		{"GW-1.example.com.:9080", here, 200},
		{"gw-2.example.com:9080", here, 421},
		{"evil.example", here, 421},
		{"", here, 200},
		{"2f72756e.kgate.socket", &net.UnixAddr{Name: "/run/kgate/admin.sock", Net: "unix"}, 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r.WithContext(withLocalAddr(r, c.at))); w.Code != c.want {
			t.Errorf("%q: %d, want %d", c.host, w.Code, c.want)
		}
	}
}
