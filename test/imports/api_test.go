package imports

import (
	"go/types"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestTypesOfTheLibrary: what the package at the top exports has its own types and Go's, and no
// others: who wants slots need not meet the proxy, metrics or traces.
func TestTypesOfTheLibrary(t *testing.T) {
	const mode = packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes
	all, err := packages.Load(&packages.Config{Mode: mode, Dir: "../..", Env: append(os.Environ(), "GOWORK=off"), Context: t.Context()}, ".")
	if err != nil || len(all) != 1 || len(all[0].Errors) > 0 {
		t.Fatal(err, all)
	}
	api := api{t: t, seen: make(map[types.Type]bool)}
	scope := all[0].Types.Scope()
	for _, name := range scope.Names() {
		if obj := scope.Lookup(name); obj.Exported() {
			api.look(name, obj.Type())
		}
	}
	if len(api.seen) < 40 {
		t.Errorf("%d types: not all was seen", len(api.seen))
	}
}

// TestQuiet: importing package kgate adds nothing to what a program shows the world: some packages
// register pages on http.DefaultServeMux.
func TestQuiet(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", "../..", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"proxy") {
		t.Fatal(deps)
	}
	for _, loud := range []string{"expvar", "testing", "net/http/pprof", "golang.org/x/net/trace", "github.com/prometheus/client_golang/prometheus"} {
		if slices.Contains(deps, loud) {
			t.Errorf("it imports %s", loud)
		}
	}
}

// api is the exported types.
type api struct {
	t    *testing.T
	seen map[types.Type]bool
}

// look looks at a type that is exported under that name, and at all that it is made of.
func (a api) look(name string, typ types.Type) {
	if a.seen[typ] {
		return
	}
	a.seen[typ] = true
	switch typ := typ.(type) {
	case *types.Named:
		if pkg := typ.Obj().Pkg(); pkg != nil && pkg.Path() != root {
			if strings.Contains(pkg.Path(), ".") {
				a.t.Errorf("%s shows %s", name, typ)
			}
			return
		}
		for m := range typ.Methods() {
			if m.Exported() {
				a.look(name+"."+m.Name(), m.Type())
			}
		}
		a.look(name, typ.Underlying())
	case *types.Struct:
		for f := range typ.Fields() {
			if f.Exported() {
				a.look(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Signature:
		for _, vars := range []*types.Tuple{typ.Params(), typ.Results()} {
			for v := range vars.Variables() {
				a.look(name, v.Type())
			}
		}
	case *types.Map:
		a.look(name, typ.Key())
		a.look(name, typ.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, channels
		a.look(name, typ.Elem())
	}
}
