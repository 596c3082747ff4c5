package proxy

import (
	"testing"

	"github.com/kgate/kgate/proxy/http1"
)

// TestForwarded: RFC 7239, with quotes where section 6 asks for them.
func TestForwarded(t *testing.T) {
	for name, tt := range map[string]struct {
		request http1.Request
		trusted bool
		want    string
	}{
		"plain":                  {http1.Request{Remote: "192.0.2.1:5", Host: "h"}, false, "for=192.0.2.1;host=h;proto=http"},
		"TLS, with port":         {http1.Request{Remote: "192.0.2.1:5", Host: "h:8443", Secure: true}, false, `for=192.0.2.1;host="h:8443";proto=https`},
		"IPv6":                   {http1.Request{Remote: "[2001:db8::1%eth0]:5", Host: "[2001:db8::2]"}, false, `for="[2001:db8::1]";host="[2001:db8::2]";proto=http`},
		"IPv4 in IPv6":           {http1.Request{Remote: "[::ffff:192.0.2.1]:5", Host: "h"}, false, "for=192.0.2.1;host=h;proto=http"},
		"no address":             {http1.Request{Remote: "@", Host: ""}, false, `for=unknown;host="";proto=http`},
		"a host that is no host": {http1.Request{Remote: "192.0.2.1:5", Host: "h\";for=6.6.6.6;\\\r\n"}, false, `for=192.0.2.1;host="h\";for=6.6.6.6;\\";proto=http`},
		"not believed": {
			http1.Request{Remote: "192.0.2.1:5", Host: "h", Fields: cameWith("Forwarded", "for=6.6.6.6", "X-Forwarded-For", "6.6.6.6")},
			false, "for=192.0.2.1;host=h;proto=http",
		},
		"believed": {
			http1.Request{Remote: "192.0.2.1:5", Host: "h", Fields: cameWith("Forwarded", "for=1.1.1.1", "Forwarded", "for=2.2.2.2;by=x", "X-Forwarded-For", "3.3.3.3")},
			true, "for=1.1.1.1, for=2.2.2.2;by=x, for=192.0.2.1;host=h;proto=http",
		},
		"believed, X-Forwarded-For": {
			http1.Request{Remote: "192.0.2.1:5", Host: "h", Fields: cameWith("X-Forwarded-For", "1.1.1.1, 2001:db8::1", "X-Forwarded-For", "2.2.2.2:80", "X-Forwarded-For", "what?")},
			true, `for=1.1.1.1, for="[2001:db8::1]", for=2.2.2.2, for=unknown, for=192.0.2.1;host=h;proto=http`,
		},
	} {
		if got := forwarded(&tt.request, tt.trusted); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
	}
}

// cameWith returns the fields of these names and values.
func cameWith(pairs ...string) (all http1.Fields) {
	for i := 0; i < len(pairs); i += 2 {
		all.Add(pairs[i], pairs[i+1])
	}
	return all
}
