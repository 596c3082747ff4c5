package caddy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestTypes: contrib/caddy is right for the compiler. To compile all of Caddy takes minutes,
// which the other tests of this package do with KGATE_SOAK=1; its declarations take seconds.
func TestTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the source of Caddy")
	}
	t.Parallel()
	const module = "../../contrib/caddy"
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir: module, Env: append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
			if file != nil && !strings.Contains(name, "/contrib/caddy/") {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 2 {
		t.Errorf("%d packages in %s", len(loaded), module)
	}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Errorf("%s: %v", p.PkgPath, err)
		}
		if p.Types == nil || len(p.Syntax) == 0 {
			t.Errorf("%s has no types", p.PkgPath)
		}
	}
}

// TestBuiltFromAClone: the command of docs/caddy.md for those without xcaddy finds its package
// in a clone, which has a go.work. `go list` stands for `go build`, which takes minutes.
func TestBuiltFromAClone(t *testing.T) {
	page, err := os.ReadFile("../../docs/caddy.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^cd contrib/caddy && .*go build .*$`).FindString(string(page))
	if command == "" {
		t.Fatal("the page has no such command")
	}
	list := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "go build", "go list", 1))
	list.Dir, list.Env = "../..", slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOWORK=") })
	if out, err := list.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "contrib/caddy/cmd/caddy\n") {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}
