package httplist

import (
	"slices"
	"testing"
)

func TestElements(t *testing.T) {
	for _, tt := range []struct {
		lines, want []string
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{"a"}, []string{"a"}},
		{[]string{"a, b\t,,c ", " ", "d"}, []string{"a", "b", "c", "d"}},
		{[]string{`a="x, y", b`}, []string{`a="x, y"`, "b"}},
		{[]string{`a="x\", y", b`}, []string{`a="x\", y"`, "b"}},
		{[]string{`a="x, y`}, []string{`a="x, y`}}, // no end
		{[]string{`1.1 h (a, (b), "c), d`}, []string{`1.1 h (a, (b), "c)`, "d"}},
		{[]string{`a), b`}, []string{"a)", "b"}},
		{[]string{`a\, b`}, []string{`a\`, "b"}},
	} {
		if got := slices.Collect(Elements(tt.lines)); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.lines, got, tt.want)
		}
	}
	for range Elements([]string{"a, b"}) {
		break // and the rest is not yielded
	}
}

func TestParameters(t *testing.T) {
	for element, want := range map[string][]string{
		"":                  {""},
		"a":                 {"a"},
		"a;":                {"a", ""},
		"a ; b=c;d":         {"a", "b=c", "d"},
		`a="x;y" ; z="\";"`: {`a="x;y"`, `z="\";"`},
	} {
		if got := Parameters(element); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", element, got, want)
		}
	}
}

func TestUnquote(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "a": "a", `"`: `"`, `""`: "", `"a b"`: "a b", `"a\"b\\"`: `a"b\`, `"a\"`: `a\`,
	} {
		if got := Unquote(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func FuzzElements(f *testing.F) {
	f.Add(`a="x, y", b;q="1;2"`)
	f.Fuzz(func(t *testing.T, line string) {
		n := 0
		for element := range Elements([]string{line}) {
			n += len(element)
			for _, p := range Parameters(element) {
				Unquote(p)
			}
		}
		if n > len(line) {
			t.Errorf("%q: elements of %d bytes", line, n)
		}
	})
}
