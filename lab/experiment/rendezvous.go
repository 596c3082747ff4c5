package experiment

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/trial"
)

const (
	ledgerHint = "trial: ledger, hint"
	onArrival  = "trial: on arrival"
)

// rendezvous asks whether released tokens can meet the head of the line in a
// better way than the one that ships.
func rendezvous() *Experiment {
	plot := func(title, figure, label, k, tickets string) Plot {
		return Plot{
			Title: fmt.Sprintf("%s, k = %s, T = 0.1 holds, %s tickets", title, k, tickets), X: "gateways", Y: figure, XLabel: "gateways", YLabel: label,
			LogX: true, LogY: figure != "messages" || tickets == "many", Series: []string{"protocol"},
			Where: map[string][]string{"k": {k}, "tickets": {tickets}, "t_over_hold": {"0.1"}},
		}
	}
	return &Experiment{
		Name:  "rendezvous",
		About: "trials of other ways for tokens to meet the head of the line, beside late, early and central, saturated",
		Quick: Size{Seeds: 2, Entries: 8000}, Full: Size{Seeds: 10, Entries: 100_000},
		Plots: []Plot{
			plot("Messages per entry", "messages", "messages per entry", "3", "one"),
			plot("Spread / central's", "spread_over_central", "spread / central's", "3", "one"),
			plot("Messages per entry", "messages", "messages per entry", "16", "many"),
			plot("Hand-off", "handoff_delays", "hand-off, one-way delays", "64", "many"),
		},
		design: func(s Setting) (*design, error) {
			protocols := []protocol.Spec{
				named("central", central.Spec()), named(early, fairk.Early()), named(late, fairk.Late()),
				named("trial: direct", trial.Direct()), named(onArrival, trial.OnArrival()),
				named("trial: ledger", trial.Ledger()), named(ledgerHint, trial.LedgerHint()),
			}
			d := &design{name: "rendezvous", keys: append(slices.Clone(contentionKeys), "protocol"), figures: costFigures}
			for _, c := range contentions(s.Full) {
				if c.delays > .005 { // below, none differs but in messages
					d.cells = append(d.cells, c.cell(protocols, s.Entries))
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			at := func(gateways, figure, protocol string) float64 {
				return t.At(figure, gateways, "3", "0.1", "many", protocol).Mean
			}
			found := func(gateways string) string {
				return fmt.Sprintf("%s gateways: ledger with hint: spread %.2f of central's, %.2f messages (early %.2f, late %.2f)", gateways,
					at(gateways, "spread_over_central", ledgerHint), at(gateways, "messages", ledgerHint), at(gateways, "messages", early), at(gateways, "messages", late))
			}
			meets := func(gateways string) bool {
				return at(gateways, "messages", ledgerHint) < at(gateways, "messages", early) && at(gateways, "spread_over_central", ledgerHint) < 1.25
			}
			const aim = "the central queue's spread at fewer messages than early binding, k = 3, many tickets, "
			return []Check{
				{What: aim + "50 and 200 gateways", Quoted: "our aim", Found: found("50") + "; " + found("200"), Agrees: meets("50") && meets("200"), Why: "no trial has both"},
				{
					What: aim + "10 gateways", Quoted: "our aim", Found: found("10"), Agrees: meets("10"),
					Why: "a tree of ten is so flat that early binding's requests cost little, and whatever passes through home costs two messages per token",
				},
			}
		},
		finding: func(t *Table) string {
			at := func(figure, protocol string) float64 {
				return t.At(figure, "10", "64", "0.1", "many", protocol).Mean
			}
			return fmt.Sprintf("where ten gateways, k = 64 and T = .1 holds make the head move faster than messages do, late's hand-off takes %.1f delays, were home told on arrival %.1f, from a ledger at home %.1f (central %.1f)",
				at("handoff_delays", late), at("handoff_delays", onArrival), at("handoff_delays", "trial: ledger"), at("handoff_delays", "central"))
		},
	}
}
