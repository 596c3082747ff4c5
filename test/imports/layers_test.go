package imports

import (
	"go/ast"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// layered packages have files that call one way.
var layered = []string{
	"chordring", "chordring/serfring", "client", "cmd/kgate", "configs", "coordinator", "internal/admin", "internal/admission", "internal/clusterkey", "internal/config",
	"gateway", "internal/deadline", "internal/demo", "internal/drift", "internal/gateway", "internal/headeredit", "internal/hostaddr", "internal/httplist", "internal/inbound", "internal/journal",
	"internal/membership", "internal/membership/leader", "internal/membership/lease", "internal/membership/views", "internal/node", "internal/oncelog",
	"internal/pace", "internal/peercall", "internal/peercert", "internal/pool", "internal/problems", "internal/socket", "internal/transport", "internal/transport/wire",
	"kgate", "kmutex", "proxy", "proxy/downstream", "proxy/http1", "proxy/http1/adapt", "proxy/tcpstate", "proxy/upstream", "replication", "replication/disk", "telemetry", "telemetry/otlp", "telemetry/prom",
}

// TestFilesCallOneWay: the files of a package are layers, as packages are. If a function
// uses one of another file, nothing leads back from there. So who reads from the bottom up
// knows all that a file builds on, and no object is spread over files that need each other.
//
// A use is a call, or a function that is handed on. Types, variables and constants may be
// used both ways. What a lower file has to call above itself it is given: as a function, or
// as an interface of its own.
func TestFilesCallOneWay(t *testing.T) {
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo
	patterns := make([]string, len(layered))
	for i, name := range layered {
		patterns[i] = strings.Replace("./"+name, "./kgate", ".", 1)
	}
	all, err := packages.Load(&packages.Config{Mode: mode, Dir: "../..", Env: append(os.Environ(), "GOWORK=off"), Context: t.Context()}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
		name, _ := nameOf(p.PkgPath)
		files := filesOf(p)
		for _, u := range files.upward() {
			t.Errorf("%s: %s calls up into %s: %s -> %s. The way down is %s.\n"+
				"Move one of these functions, or give %s what it needs of %s.",
				name, u.at, u.into, u.from, u.to, strings.Join(files.path(u.into, u.at), ", "), u.from, u.to)
		}
	}
}

// use is a function of the file at that uses one of the file into.
type use struct{ from, to, at, into string }

// files has what leads from each file of a package to each other one.
type files map[string]map[string][]use

func filesOf(p *packages.Package) files {
	g := make(files)
	for _, f := range p.Syntax {
		at := filepath.Base(p.Fset.Position(f.Pos()).Filename)
		g[at] = make(map[string][]use)
		for _, d := range f.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				id, isIdent := n.(*ast.Ident)
				if !isIdent {
					return true
				}
				to, isFunc := p.TypesInfo.Uses[id].(*types.Func)
				if !isFunc || to.Pkg() != p.Types {
					return true
				}
				to = to.Origin()
				if recv := to.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
					return true
				}
				into := filepath.Base(p.Fset.Position(to.Pos()).Filename)
				if u := (use{nameOfDecl(p, d), nameOfFunc(to), at, into}); into != at && !slices.Contains(g[at][into], u) {
					g[at][into] = append(g[at][into], u)
				}
				return true
			})
		}
	}
	return g
}

func nameOfDecl(p *packages.Package, d ast.Decl) string {
	if f, isFunc := d.(*ast.FuncDecl); isFunc {
		return nameOfFunc(p.TypesInfo.Defs[f.Name].(*types.Func))
	}
	return "a variable"
}

// nameOfFunc returns f, or T.f.
func nameOfFunc(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return f.Name()
	}
	of := types.TypeString(recv.Type(), func(*types.Package) string { return "" })
	return strings.TrimPrefix(of, "*") + "." + f.Name()
}

// path returns the shortest way from one file to another; nil: there is none.
func (g files) path(from, to string) []string {
	before := map[string]string{from: ""}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		if next[0] == to {
			var way []string
			for f := to; f != ""; f = before[f] {
				way = append(way, f)
			}
			slices.Reverse(way)
			return way
		}
		for _, f := range slices.Sorted(maps.Keys(g[next[0]])) {
			if _, known := before[f]; !known {
				before[f] = next[0]
				next = append(next, f)
			}
		}
	}
	return nil
}

// upward returns the uses that run up where files are in a circle. Which way is up there
// the greater number of uses says.
func (g files) upward() (up []use) {
	circle := maps.Clone(g)
	maps.DeleteFunc(circle, func(f string, _ map[string][]use) bool {
		for other := range g[f] {
			if g.path(other, f) != nil {
				return false
			}
		}
		return true
	})
	for len(circle) > 0 {
		top, most := "", 0
		for _, f := range slices.Sorted(maps.Keys(circle)) {
			down := 0
			for other := range circle {
				if other != f && g.path(f, other) != nil && g.path(other, f) != nil {
					down += len(g[f][other]) - len(g[other][f])
				}
			}
			if top == "" || down > most {
				top, most = f, down
			}
		}
		delete(circle, top)
		for _, f := range slices.Sorted(maps.Keys(circle)) {
			if g.path(top, f) != nil {
				up = append(up, g[f][top]...)
			}
		}
	}
	return up
}
