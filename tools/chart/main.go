// Chart does what `helm lint` and `helm template` do: it prints the manifests of the chart
// in a folder, or what is wrong with it.
//
//	chart FOLDER RELEASE [values.yaml]
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: chart FOLDER RELEASE [values.yaml]")
	}
	values := chartutil.Values{}
	if len(args) > 2 {
		var err error
		if values, err = chartutil.ReadValuesFile(args[2]); err != nil {
			return err
		}
	}
	linted := lint.All(args[0], values, "default", true)
	for _, m := range linted.Messages {
		log.Print(m)
	}
	if linted.HighestSeverity > support.InfoSev {
		return fmt.Errorf("%s: the chart is not clean", args[0])
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: args[1], Namespace: "default", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && strings.HasSuffix(name, ".yaml") {
			fmt.Printf("---\n%s\n", text)
		}
	}
	return nil
}
