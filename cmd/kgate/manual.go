package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// manualCommand writes the manual pages, one per command, from the command line's
// own help. It is for packagers.
type manualCommand struct {
	Dir string `arg:"" help:"Folder for the pages."`
}

func (c *manualCommand) Run(app *kong.Context) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	return c.write(app.Model.Node)
}

func (c *manualCommand) write(n *kong.Node) error {
	var b strings.Builder
	page{&b}.all(n)
	if err := os.WriteFile(filepath.Join(c.Dir, pageName(n)+".1"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	for _, child := range n.Children {
		if child.Hidden {
			continue
		}
		if err := c.write(child); err != nil {
			return err
		}
	}
	return nil
}

// pageName is the name of a command's page, such as kgate-pool-set.
func pageName(n *kong.Node) string { return strings.ReplaceAll(commandName(n), " ", "-") }

// commandName is a command as it is typed, without its arguments.
func commandName(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return commandName(n.Parent) + " " + n.Name
}

// page writes one page in the language of man(7).
type page struct{ b *strings.Builder }

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`)

// text writes lines as they are meant, not as roff would read them.
func (p page) text(s string) {
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		line = roff.Replace(line)
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		fmt.Fprintln(p.b, line)
	}
}

func (p page) section(title string) { fmt.Fprintln(p.b, ".SH", title) }

func (p page) all(n *kong.Node) {
	v, _ := buildVersion()
	fmt.Fprintf(p.b, ".TH %s 1 \"\" \"kgate %s\"\n", strings.ToUpper(roff.Replace(pageName(n))), v)
	p.section("NAME")
	p.text(pageName(n) + " - " + strings.TrimSuffix(n.Help, "."))
	p.section("SYNOPSIS")
	p.synopsis(n)
	p.section("DESCRIPTION")
	p.text(n.Help)
	p.detail(n.Detail)
	p.commands(n)
	p.options(n)
	p.related(n)
}

func (p page) synopsis(n *kong.Node) {
	fmt.Fprintf(p.b, ".B %s\n", roff.Replace(commandName(n)))
	if len(n.Children) > 0 {
		fmt.Fprintln(p.b, `.I command`)
	}
	fmt.Fprintln(p.b, `[\fIoptions\fR]`)
	for _, a := range n.Positional {
		p.text(a.Summary())
	}
}

// detail writes a command's long help. Its examples and exit codes, each a
// paragraph, become sections.
func (p page) detail(detail string) {
	var examples, codes string
	for paragraph := range strings.SplitSeq(detail, "\n\n") {
		if rest, ok := strings.CutPrefix(paragraph, "Examples:\n"); ok {
			examples = rest
		} else if rest, ok := strings.CutPrefix(paragraph, "Exit codes: "); ok {
			codes = rest
		} else {
			fmt.Fprintln(p.b, ".PP")
			p.text(paragraph)
		}
	}
	if examples != "" {
		p.section("EXAMPLES")
		fmt.Fprintln(p.b, ".nf")
		for line := range strings.SplitSeq(examples, "\n") {
			p.text(strings.TrimPrefix(line, "  "))
		}
		fmt.Fprintln(p.b, ".fi")
	}
	if codes != "" {
		p.section(`"EXIT STATUS"`)
		p.text(codes)
	}
}

func (p page) commands(n *kong.Node) {
	if len(n.Children) == 0 {
		return
	}
	p.section("COMMANDS")
	for _, child := range n.Children {
		if !child.Hidden {
			fmt.Fprintf(p.b, ".TP\n.BR %s (1)\n", roff.Replace(pageName(child)))
			p.text(child.Help)
		}
	}
}

func (p page) options(n *kong.Node) {
	p.section("OPTIONS")
	for _, a := range n.Positional {
		fmt.Fprintf(p.b, ".TP\n.I %s\n", roff.Replace(a.Summary()))
		p.text(a.Help)
	}
	for _, f := range slices.Concat(n.AllFlags(true)...) {
		fmt.Fprintln(p.b, ".TP")
		name := `\fB` + roff.Replace("--"+f.Name) + `\fR`
		if f.Short != 0 {
			name = `\fB\-` + string(f.Short) + `\fR, ` + name
		}
		if !f.IsBool() {
			name += `=\fI` + roff.Replace(f.FormatPlaceHolder()) + `\fR`
		}
		fmt.Fprintln(p.b, name)
		p.text(f.Help)
		if len(f.Envs) > 0 {
			p.text("Also the variable " + strings.Join(f.Envs, ", ") + ".")
		}
	}
}

func (p page) related(n *kong.Node) {
	if n.Parent == nil {
		return
	}
	p.section(`"SEE ALSO"`)
	fmt.Fprintf(p.b, ".BR %s (1)\n", roff.Replace(pageName(n.Parent)))
}
