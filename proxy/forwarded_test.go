package proxy

import (
	"crypto/tls"
	"net/http"
	"testing"
)

// TestForwarded: RFC 7239, with quotes where section 6 asks for them.
func TestForwarded(t *testing.T) {
	for name, tt := range map[string]struct {
		request http.Request
		trusted bool
		want    string
	}{
		"plain":                  {http.Request{RemoteAddr: "192.0.2.1:5", Host: "h"}, false, "for=192.0.2.1;host=h;proto=http"},
		"TLS, with port":         {http.Request{RemoteAddr: "192.0.2.1:5", Host: "h:8443", TLS: new(tls.ConnectionState)}, false, `for=192.0.2.1;host="h:8443";proto=https`},
		"IPv6":                   {http.Request{RemoteAddr: "[2001:db8::1%eth0]:5", Host: "[2001:db8::2]"}, false, `for="[2001:db8::1]";host="[2001:db8::2]";proto=http`},
		"IPv4 in IPv6":           {http.Request{RemoteAddr: "[::ffff:192.0.2.1]:5", Host: "h"}, false, "for=192.0.2.1;host=h;proto=http"},
		"no address":             {http.Request{RemoteAddr: "@", Host: ""}, false, `for=unknown;host="";proto=http`},
		"a host that is no host": {http.Request{RemoteAddr: "192.0.2.1:5", Host: "h\";for=6.6.6.6;\\\r\n"}, false, `for=192.0.2.1;host="h\";for=6.6.6.6;\\";proto=http`},
		"not believed": {
			http.Request{RemoteAddr: "192.0.2.1:5", Host: "h", Header: http.Header{"Forwarded": {"for=6.6.6.6"}, "X-Forwarded-For": {"6.6.6.6"}}},
			false, "for=192.0.2.1;host=h;proto=http",
		},
		"believed": {
			http.Request{RemoteAddr: "192.0.2.1:5", Host: "h", Header: http.Header{"Forwarded": {"for=1.1.1.1", "for=2.2.2.2;by=x"}, "X-Forwarded-For": {"3.3.3.3"}}},
			true, "for=1.1.1.1, for=2.2.2.2;by=x, for=192.0.2.1;host=h;proto=http",
		},
		"believed, X-Forwarded-For": {
			http.Request{RemoteAddr: "192.0.2.1:5", Host: "h", Header: http.Header{"X-Forwarded-For": {"1.1.1.1, 2001:db8::1", "2.2.2.2:80", "what?"}}},
			true, `for=1.1.1.1, for="[2001:db8::1]", for=2.2.2.2, for=unknown, for=192.0.2.1;host=h;proto=http`,
		},
	} {
		if got := forwarded(&tt.request, tt.trusted); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}
