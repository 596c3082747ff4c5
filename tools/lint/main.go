// Lint is staticcheck with some checks more: errors that nobody looks at, switches that miss a
// constant, assignments that nobody reads, and log lines that cannot be searched for.
package main

import (
	"log"
	"os"

	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/nishanths/exhaustive/passes/exhaustive"
	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/lintcmd"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	cmd := lintcmd.NewCommand("lint")
	unchecked := cmd.FlagSet().String("unchecked", "", "`file` with functions whose errors need no look")
	cmd.ParseFlags(os.Args[1:])

	cmd.AddAnalyzers(simple.Analyzers...)
	cmd.AddAnalyzers(staticcheck.Analyzers...)
	cmd.AddAnalyzers(stylecheck.Analyzers...)
	cmd.AddAnalyzers(unused.Analyzer)

	set(errcheck.Analyzer.Flags.Set("exclude", *unchecked))
	set(exhaustive.Analyzer.Flags.Set("d", "true"))
	logs := sloglint.New(&sloglint.Options{AttributesOnly: true, StaticMessage: true, KeyNamingCase: "snake"})
	run := logs.Run
	logs.Run = func(pass *analysis.Pass) (any, error) {
		pass.Module = new(analysis.Module) // which staticcheck leaves nil
		return run(pass)
	}
	cmd.AddBareAnalyzers(errcheck.Analyzer, exhaustive.Analyzer, ineffassign.Analyzer, logs)
	cmd.Run()
}

func set(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
