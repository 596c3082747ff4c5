package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/kgate/kgate/lab/experiment"
)

type listCommand struct{}

func (listCommand) Run(std streams) error {
	out := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "NAME\tSOURCE\tSEEDS x ENTRIES\t--full\tWHAT")
	for _, e := range experiment.All() {
		fmt.Fprintf(out, "%s\t%s\t%d x %d\t%d x %d\t%s\n", e.Name, cmp.Or(e.Source, "ours"),
			e.Quick.Seeds, e.Quick.Entries, e.Full.Seeds, e.Full.Entries, e.About)
	}
	return out.Flush()
}
