package main

import (
	"fmt"

	"github.com/kgate/kgate/lab/experiment"
)

// claimsCommand prints the table of claims.
type claimsCommand struct {
	Paper string `name:"paper" enum:"all,000,001,002,003,004,kgate" default:"all" help:"Only the claims of this paper, or of kgate: 000, 001, 002, 003, 004, kgate."`
	experimentFlags
}

func (claimsCommand) Help() string {
	return `Every claim of the five papers, and kgate's own, with the tolerance that was fixed
before the run, what was measured, and the verdict: agrees, shape only, differs.
docs/lab.md and docs/field.md have this table, as it is without flags.

Examples:
  kgate-lab claims
  kgate-lab claims --paper 003

Exit codes: 0 done, 1 it could not run, 2 wrong command line.`
}

func (c *claimsCommand) Run(std streams) error {
	wanted := func(paper string) bool { return c.Paper == "all" || c.Paper == paper }
	var experiments []*experiment.Experiment
	for _, e := range experiment.All() {
		for _, claim := range e.Claims {
			if wanted(claim.Paper) {
				experiments = append(experiments, e)
				break
			}
		}
	}
	results, err := c.measure(std, experiments)
	if err != nil {
		return err
	}
	var claims []experiment.Judged
	verdicts := make(map[experiment.Verdict]int)
	for _, r := range results {
		for _, j := range r.Claims {
			if wanted(j.Paper) {
				claims = append(claims, j)
				verdicts[j.Verdict]++
			}
		}
	}
	printClaims(std.out, experiment.InOrder(claims))
	_, err = fmt.Fprintf(std.out, "\n%d claims: %d agree, %d in shape only, %d differ\n", len(claims), verdicts[experiment.Agrees], verdicts[experiment.ShapeOnly], verdicts[experiment.Differs])
	return err
}
