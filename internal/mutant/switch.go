package mutant

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chosen is the environment variable with the number, from 1, of the defect that acts. It does not have
// the prefix of kgate's own variables, which tests remove when they start gateways.
const chosen = "PLANTED_DEFECT"

// switches is source in which several defects are planted, each of them off. A function with defects
// gets a copy for each, and calls the chosen copy.
type switches struct {
	files map[string]*switchedFile // by absolute path
}

// switchedFile is a source file and the text to insert in it.
type switchedFile struct {
	source []byte
	syntax *ast.File
	fset   *token.FileSet
	cases  map[*ast.FuncDecl][]string
	copies []string
}

var errNoSwitch = errors.New("the change is not within one function that can be copied")

// add plants the defect with this number. It fails with errNoSwitch if the call of another function
// cannot make the change.
func (s *switches) add(number int, c Change) error {
	path, err := filepath.Abs(filepath.FromSlash(c.File))
	if err != nil {
		return err
	}
	f := s.files[path]
	if f == nil {
		if f, err = readSwitched(path); err != nil {
			return err
		}
		s.files[path] = f
	}
	at, err := find(f.source, c)
	if err != nil {
		return err
	}
	for _, d := range f.syntax.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && f.offset(d.Pos()) <= at && at+len(c.Old) <= f.offset(d.End()) {
			return f.add(number, d, at, c)
		}
	}
	return errNoSwitch
}

func readSwitched(path string) (*switchedFile, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &switchedFile{source: source, syntax: syntax, fset: fset, cases: make(map[*ast.FuncDecl][]string)}, nil
}

func (f *switchedFile) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// add copies the function d, with the change at that offset.
func (f *switchedFile) add(number int, d *ast.FuncDecl, at int, c Change) error {
	begin, end := f.offset(d.Pos()), f.offset(d.End())
	changed := string(f.source[begin:at]) + c.New + string(f.source[at+len(c.Old):end])
	name := fmt.Sprintf("%s_mutant%d", d.Name.Name, number)
	body := f.offset(d.Body.Lbrace) - begin
	if at < begin+body && !strings.HasPrefix(changed, string(f.source[begin:begin+body])) || d.Name.Name == "init" {
		return errNoSwitch // another signature
	}
	call, err := f.call(d, name)
	if err != nil {
		return err
	}
	n := f.offset(d.Name.Pos()) - begin
	f.copies = append(f.copies, changed[:n]+name+changed[n+len(d.Name.Name):])
	f.cases[d] = append(f.cases[d], fmt.Sprintf("case %d: %s", number, call))
	return nil
}

// call returns statements that call another function in place of d.
func (f *switchedFile) call(d *ast.FuncDecl, name string) (string, error) {
	if d.Recv != nil {
		receiver := d.Recv.List[0].Names
		if len(receiver) == 0 || receiver[0].Name == "_" {
			return "", errNoSwitch
		}
		name = receiver[0].Name + "." + name
	}
	if d.Type.TypeParams != nil {
		var types []string
		for _, field := range d.Type.TypeParams.List {
			for _, t := range field.Names {
				types = append(types, t.Name)
			}
		}
		name += "[" + strings.Join(types, ", ") + "]"
	}
	var args []string
	for _, field := range d.Type.Params.List {
		if len(field.Names) == 0 {
			return "", errNoSwitch
		}
		for _, n := range field.Names {
			if n.Name == "_" {
				return "", errNoSwitch
			}
			arg := n.Name
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if d.Type.Results == nil {
		return call + "; return", nil
	}
	return "return " + call, nil
}

// overlay writes the files with all defects in dir and returns the path of the go command's overlay
// file.
func (s *switches) overlay(dir string) (string, error) {
	replace := make(map[string]string)
	for path, f := range s.files {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], f.render(), 0o600); err != nil {
			return "", err
		}
		// A file that is only in the overlay reads the choice, once per package.
		choice := filepath.Join(filepath.Dir(path), "mutant_choice.go")
		if replace[choice] != "" {
			continue
		}
		replace[choice] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		text := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantChoice, _ = strconv.Atoi(os.Getenv(%q))\n", f.syntax.Name.Name, chosen)
		if err := os.WriteFile(replace[choice], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return writeOverlay(dir, replace)
}

// render returns the source with the copies at its end. No line of it moves.
func (f *switchedFile) render() []byte {
	functions := make([]*ast.FuncDecl, 0, len(f.cases))
	for d := range f.cases {
		functions = append(functions, d)
	}
	slices.SortFunc(functions, func(a, b *ast.FuncDecl) int { return cmp.Compare(a.Pos(), b.Pos()) })
	var out []byte
	from := 0
	for _, d := range functions {
		to := f.offset(d.Body.Lbrace) + 1
		out = append(out, f.source[from:to]...)
		out = append(out, " switch mutantChoice { "+strings.Join(f.cases[d], "; ")+" };"...)
		from = to
	}
	out = append(out, f.source[from:]...)
	return append(out, "\n"+strings.Join(f.copies, "\n\n")+"\n"...)
}
