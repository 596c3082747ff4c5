package http1

import (
	"net/textproto"
	"strings"
	"testing"
)

// TestNames: each known name is found by its hash, however it is spelled, and is spelled as
// net/http has it.
func TestNames(t *testing.T) {
	for id := Other + 1; id < ids; id++ {
		name := id.String()
		if name != textproto.CanonicalMIMEHeaderKey(name) {
			t.Errorf("%d is called %q", id, name)
		}
		for _, s := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if got := idOf([]byte(s)); got != id {
				t.Errorf("%q has the id of %q", s, got)
			}
		}
		for _, s := range []string{name + "x", "x" + name, strings.Replace(name, "-", "_", 1) + "", name[1:]} {
			if got := idOf([]byte(s)); got == id && s != name {
				t.Errorf("%q has the id of %q", s, got)
			}
		}
	}
	if ids > 64 {
		t.Errorf("%d names do not fit a Head's set", ids)
	}
	if idOf([]byte("X")) != Other {
		t.Error("a name that is not known is known")
	}
}
