package headeredit

import (
	"errors"
	"strings"
	"testing"
)

func TestValue(t *testing.T) {
	lookup := func(name string) string { return "<" + name + ">" }
	for in, want := range map[string]string{
		"plain":                   "plain",
		"{client}":                "<client>",
		"a{host}b{pool}":          "a<host>b<pool>",
		"{gateway}{request_id}":   "<gateway><request_id>",
		`{"group":"a","max":1}`:   `{"group":"a","max":1}`,
		"{} {Host} { host } {{":   "{} {Host} { host } {{",
		"{{host}}":                "{<host>}",
		"{host":                   "{host",
		"max-age=3600; \u00fcber": "max-age=3600; \u00fcber",
	} {
		v, err := ParseValue(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got, ok := v.Expand(lookup); !ok || got != want {
			t.Errorf("%q: got %q", in, got)
		}
		if fixed, ok := v.Fixed(); ok != (in == want) || ok && fixed != want {
			t.Errorf("%q: fixed %q, %v", in, fixed, ok)
		}
		if v.Uses(Host) != strings.Contains(in, "{host}") {
			t.Errorf("%q: uses host: %v", in, v.Uses(Host))
		}
	}
	for in, wrong := range map[string]string{
		"":         "empty",
		"a\r\nb":   "line break",
		"a\nb":     "line break",
		"\x00":     "control",
		" a":       "space",
		"a\t":      "space",
		"{hosts}":  "there is no placeholder {hosts}",
		"a{_}{b}c": "there is no placeholder {_}",
	} {
		var e *Error
		if _, err := ParseValue(in); !errors.As(err, &e) || !strings.Contains(e.Wrong, wrong) || e.Hint == "" {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// TestExpandToNothingElse: for any values of placeholders, the expanded value is one line.
func TestExpandToNothingElse(t *testing.T) {
	v, err := ParseValue("a {host}")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h\r\nX: y", "h\n", "h\x00", "h\r"} {
		if got, ok := v.Expand(func(string) string { return host }); ok {
			t.Errorf("%q is a value", got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string][2]bool{ // may be changed in requests, in answers
		"X-Real-IP": {true, true}, "cookie": {true, true}, "Server": {true, true}, "X-Forwarded-Prefix": {true, true},
		"Alt-Svc": {true, true}, "Content-Type": {true, true}, "User-Agent": {true, true},
		"Date": {true, false}, "Host": {false, true}, "expect": {false, true}, "Max-Forwards": {false, true},
		"x-forwarded-for": {false, true}, "X-Forwarded-Host": {false, true}, "X-Forwarded-Proto": {false, true}, "Forwarded": {false, true}, "Via": {false, true},
		"Connection": {}, "keep-alive": {}, "Proxy-Connection": {}, "TE": {}, "Trailer": {}, "Transfer-Encoding": {}, "Upgrade": {},
		"Proxy-Authorization": {}, "Proxy-Authenticate": {}, "Content-Length": {},
		"Kgate-Fence": {}, "kgate-anything": {}, "Kgate_Fence": {}, "KGATE-X": {},
		"": {}, "a b": {}, "a:": {}, "a\r\nb": {}, "\u00fc": {}, strings.Repeat("x", 65): {},
	} {
		if CheckRequest(name) == nil != want[0] || CheckAnswer(name) == nil != want[1] {
			t.Errorf("%q: in requests: %v; in answers: %v", name, CheckRequest(name), CheckAnswer(name))
		}
	}
}
