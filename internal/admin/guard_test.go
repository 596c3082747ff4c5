package admin

import (
	"context"
	"net"
	"net/http"
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
