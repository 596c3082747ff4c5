package http1

import (
	"strings"
	"testing"
)

// TestInputShrinks: what is unused keeps no more memory than it needs.
func TestInputShrinks(t *testing.T) {
	const used = 9000
	in := NewInput(strings.NewReader(strings.Repeat("x", used)+"abc"), 16<<10)
	for in.Len() < used+3 {
		if err := in.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	in.Discard(used)
	in.Release()
	if got := string(in.Buffered()); got != "abc" || in.Size() != minBuffer {
		t.Errorf("%q is unused, in %d bytes", got, in.Size())
	}
	in.Discard(3)
	if in.Release(); in.Size() != 0 {
		t.Errorf("nothing is unused, in %d bytes", in.Size())
	}
}
