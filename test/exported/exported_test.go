package exported

import (
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/kgate/kgate"

// public packages are imported by others than us.
var public = []string{module, module + "/client", module + "/gateway"}

// kits are packages for tests, and those whose programs are tests.
var kits = []string{
	module + "/internal/admin/admintest", module + "/internal/journal/journaltest", module + "/internal/memnet", module + "/internal/mutant",
	module + "/internal/nametest", module + "/internal/timing", module + "/internal/inside/fields", module + "/lab/",
}

// forTests are names that only tests of other packages use.
var forTests = []string{
	"internal/admin.TicketsPath", "internal/config.Parse", "internal/demo.HoldHeader", "internal/journal.Journal.Fail", "internal/journal.Journal.Mark",
	"internal/journal.Journal.Tag", "internal/journal.OS", "internal/membership/views.Pool.UpstreamK", "internal/pace.Burst", "internal/transport/wire.Link.Queued",
	"internal/transport/wire.MaxMessage",
	"kmutex.Machine.Clone", "kmutex.NewTokenSet", "proxy.Slot", "replication.Replica.Absorbed", "replication.Replica.Records",
	"proxy/http1.Head.AuthorityIn", "proxy/http1.Head.ID", "proxy/http1.Head.Len", "proxy/http1.Head.Method", "proxy/http1.Head.NameIn",
	"proxy/http1.Head.TargetIn", "proxy/http1.Head.ValueIn", "proxy/http1.NewInput",
}

// TestExportedNamesHaveUsers: an exported function, type, variable, constant or
// method is used by another package, and not only by its tests. A test is a user of an error, of kits
// and of forTests. A method that an interface
// asks for has a user in that; a type has one in whoever uses a function or a
// struct that mentions it, and so have the values of an enumeration.
func TestExportedNamesHaveUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("loads the whole source")
	}
	loaded := append(load(t, "../.."), load(t, "..")...)
	used, byTests, interfaces := make(map[string]bool), make(map[string]bool), make(map[string][]*types.Interface)
	for _, p := range loaded {
		for id, obj := range p.TypesInfo.Uses {
			if key := keyOf(obj); key != "" && obj.Pkg().Path() != p.PkgPath {
				users := used
				if inTest(p, id) && !isForTests(key) {
					users = byTests
				}
				users[key] = true
				reached(obj, users)
			}
		}
		collect(p, interfaces)
	}
	for _, p := range loaded {
		promoted(p, interfaces, used)
	}
	seen := make(map[string]bool)
	for _, p := range loaded {
		if !strings.HasPrefix(p.PkgPath, module) || strings.HasPrefix(p.PkgPath, module+"/test/") || p.Name == "main" ||
			strings.HasSuffix(p.PkgPath, "_test") || slices.Contains(public, p.PkgPath) {
			continue
		}
		for _, obj := range exportedOf(p) {
			key := keyOf(obj)
			if used[key] || seen[key] || asked(obj, interfaces) || value(obj, used) {
				continue
			}
			seen[key] = true
			who := "nobody else uses"
			if byTests[key] {
				who = "only tests use"
			}
			t.Errorf("%s: %s %s", short(p.Fset, obj), who, strings.TrimPrefix(key, module+"/"))
		}
	}
	if len(used) < 500 {
		t.Errorf("only %d names are used: not all was loaded", len(used))
	}
}

// inTest reports whether an identifier is in a test, or in what only tests are made of.
func inTest(p *packages.Package, id *ast.Ident) bool {
	return strings.HasSuffix(p.Fset.Position(id.Pos()).Filename, "_test.go") || strings.HasPrefix(p.PkgPath, module+"/test/")
}

// isForTests reports whether a test is a user of a name.
func isForTests(key string) bool {
	name := strings.TrimPrefix(key, module+"/")
	return slices.ContainsFunc(kits, func(kit string) bool { return strings.HasPrefix(key, kit) }) ||
		strings.HasPrefix(name[strings.LastIndexByte(name, '.')+1:], "Err") || slices.Contains(forTests, name)
}

// load returns the packages of a module and their tests.
func load(t *testing.T, dir string) []*packages.Package {
	t.Helper()
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports
	all, err := packages.Load(&packages.Config{Mode: mode, Dir: dir, Tests: true, Env: append(os.Environ(), "GOWORK=off")}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
	}
	return all
}

// keyOf names an exported object alike in all variants of its package, as
// path.Name or path.Type.Method; "" for what does not count.
func keyOf(obj types.Object) string {
	if obj == nil || obj.Pkg() == nil || !obj.Exported() || !strings.HasPrefix(obj.Pkg().Path(), module) {
		return ""
	}
	if f, ok := obj.(*types.Func); ok {
		if recv := f.Origin().Signature().Recv(); recv != nil {
			named := namedOf(recv.Type())
			if named == nil || !named.Obj().Exported() {
				return ""
			}
			return obj.Pkg().Path() + "." + named.Obj().Name() + "." + obj.Name()
		}
	}
	if obj.Parent() != obj.Pkg().Scope() {
		return ""
	}
	return obj.Pkg().Path() + "." + obj.Name()
}

// reached marks the types that users of obj handle without naming them: those of
// its parameters, results and fields.
func reached(obj types.Object, used map[string]bool) {
	visited := make(map[types.Type]bool)
	var visit func(t types.Type)
	visit = func(t types.Type) {
		if visited[t] {
			return
		}
		visited[t] = true
		switch t := t.(type) {
		case *types.Alias:
			visit(t.Rhs())
		case *types.Named:
			if key := keyOf(t.Obj()); key != "" {
				used[key] = true
				visit(t.Underlying())
				for m := range t.Methods() {
					if m.Exported() {
						visit(m.Type())
					}
				}
			}
		case *types.Signature:
			visit(t.Params())
			visit(t.Results())
		case *types.Tuple:
			for v := range t.Variables() {
				visit(v.Type())
			}
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() {
					visit(f.Type())
				}
			}
		case *types.Interface:
			for m := range t.Methods() {
				visit(m.Type())
			}
		case *types.Map:
			visit(t.Key())
			visit(t.Elem())
		case interface{ Elem() types.Type }:
			visit(t.Elem())
		}
	}
	visit(obj.Type())
}

// value reports whether obj is one of the values of an enumeration that is used.
func value(obj types.Object, used map[string]bool) bool {
	c, ok := obj.(*types.Const)
	if !ok {
		return false
	}
	named := namedOf(c.Type())
	return named != nil && used[keyOf(named.Obj())]
}

func namedOf(t types.Type) *types.Named {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := t.(*types.Named)
	return named
}

// exportedOf returns what files that are no tests declare.
func exportedOf(p *packages.Package) []types.Object {
	var all []types.Object
	add := func(id *ast.Ident) {
		if obj := p.TypesInfo.Defs[id]; keyOf(obj) != "" {
			all = append(all, obj)
		}
	}
	for _, file := range p.Syntax {
		if strings.HasSuffix(p.Fset.Position(file.Pos()).Filename, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				add(d.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return all
}

// collect adds the interfaces that p and what it imports declare, by the names
// of their methods.
func collect(p *packages.Package, by map[string][]*types.Interface) {
	add := func(t types.Type) {
		if i, ok := t.Underlying().(*types.Interface); ok {
			for m := range i.Methods() {
				by[m.Name()] = append(by[m.Name()], i)
			}
		}
	}
	for _, tv := range p.TypesInfo.Types {
		if tv.IsType() {
			add(tv.Type)
		}
	}
	for _, imported := range p.Types.Imports() {
		for _, name := range imported.Scope().Names() {
			if obj, ok := imported.Scope().Lookup(name).(*types.TypeName); ok {
				add(obj.Type())
			}
		}
	}
}

// promoted marks the methods by which a type that embeds theirs implements an interface.
func promoted(p *packages.Package, interfaces map[string][]*types.Interface, used map[string]bool) {
	for _, name := range p.Types.Scope().Names() {
		named, ok := p.Types.Scope().Lookup(name).Type().(*types.Named)
		if !ok || types.IsInterface(named) {
			continue
		}
		for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if len(m.Index()) > 1 && slices.ContainsFunc(interfaces[m.Obj().Name()], func(i *types.Interface) bool { return has(named, i) }) {
				used[keyOf(m.Obj())] = true
			}
		}
	}
}

// asked reports whether obj is a method that an interface has which its type
// implements.
func asked(obj types.Object, interfaces map[string][]*types.Interface) bool {
	f, ok := obj.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return false
	}
	named := namedOf(f.Signature().Recv().Type())
	return slices.ContainsFunc(interfaces[f.Name()], func(i *types.Interface) bool {
		return has(named, i)
	})
}

// has reports whether the type has all methods of i, by name: two loads of a
// package have no types in common.
func has(named *types.Named, i *types.Interface) bool {
	set := types.NewMethodSet(types.NewPointer(named))
	for m := range i.Methods() {
		if set.Lookup(m.Pkg(), m.Name()) == nil {
			return false
		}
	}
	return true
}

func short(fset *token.FileSet, obj types.Object) string {
	position := fset.Position(obj.Pos())
	if _, rest, ok := strings.Cut(position.Filename, "/test/exported/"); ok {
		position.Filename = rest
	}
	return position.String()
}
