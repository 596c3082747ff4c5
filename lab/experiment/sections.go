package experiment

import (
	"fmt"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/protocol/lookahead"
)

// sectionPools are some in which k T is above a hold, and then some in which it is
// not. The saturated ones have one ticket per gateway.
var sectionPools = []pool{
	{nodes: 200, k: 64, load: 1, delays: .1},
	{nodes: 50, k: 16, load: 1, delays: .1},
	{nodes: 50, k: 16, load: .5, delays: .1},
	{nodes: 50, k: 16, load: .7, delays: .1},
	{nodes: 50, k: 64, load: .5, delays: .1},
	{nodes: 50, k: 16, load: .9, delays: .01},
	{nodes: 10, k: 16, load: .9, delays: .005},
	{nodes: 10, k: 16, load: .3, delays: .005},
}

const (
	written = "written line"
	eight   = "sections, b = 8"
	sixteen = "sections, b = 16"
)

// sections asks what late binding would gain if the coordinator knew more of the
// line than its own batch.
func sections() *Experiment {
	return &Experiment{
		Name:  "sections",
		About: "where k T is above a hold: late binding, two ways to know more of the line, early binding and a central queue",
		Quick: Size{Seeds: 2, Entries: 8000}, Full: Size{Seeds: 20, Entries: 100_000},
		Plots: []Plot{{
			Title: "Tokens busy, saturated, one ticket per gateway, T = .1 holds", X: "gateways", Y: "busy", XLabel: "gateways", YLabel: "share of the token time",
			LogX: true, Series: []string{"protocol"}, Where: map[string][]string{"load": {"1"}},
		}},
		design: func(s setting) (*design, error) {
			d := &design{name: "sections", keys: loadKeys, figures: standard}
			for _, c := range sectionPools {
				c.design(d, []protocol.Spec{
					named(late, fairk.Late()), named(eight, lookahead.Sections(8)), named(sixteen, lookahead.Sections(16)), named(written, lookahead.Written()),
					named("central", central.Spec()), named(early, fairk.Early()), named(perfect, ideal.Spec()),
				}, s.Entries)
			}
			return d, nil
		},
		checks: checkSections,
		finding: func(t *Table) string {
			at := func(figure, p string) float64 { return t.at(figure, "200", "64", "1", "0.1", p).Mean }
			return fmt.Sprintf("200 gateways with a ticket each, k = 64, T a tenth of a hold: tokens busy %.2f late, %.2f in sections, %.2f with the line written down at home, %.2f central; messages per admission %.1f, %.1f, %.1f, %.1f",
				at("busy", late), at("busy", eight), at("busy", written), at("busy", "central"), at("messages", late), at("messages", eight), at("messages", written), at("messages", "central"))
		},
	}
}

func checkSections(t *Table) []Check {
	at := func(p string) float64 { return t.at("busy", "200", "64", "1", "0.1", p).Mean }
	atWorst := func(p string) (most float64) {
		for _, c := range sectionPools {
			if c.load > .3 { // below it tokens rest under late binding, which the model leaves out
				wait := func(p string) float64 { return t.at("mean_s", append(c.byLoad(), p)...).Mean }
				most = max(most, wait(p)/wait(late))
			}
		}
		return most
	}
	return []Check{
		{
			What: "tokens busy, 200 gateways with a ticket each, k = 64, T = .1 holds", Quoted: "an earlier trial: late .15, sections .55, central .84",
			Found:  fmt.Sprintf("late %.2f, sections %.2f and %.2f (b = 8, 16), written line %.2f, central %.2f", at(late), at(eight), at(sixteen), at(written), at("central")),
			Agrees: at(late) < .2 && within(at(eight), .45, .7) && at(written) > .8 && at("central") > .8, Why: "see the table",
		},
		{
			What: "waits in sections are never longer than late binding's, load .5 and above", Quoted: "our condition for shipping them",
			Found: fmt.Sprintf("mean wait at worst %.2f (b = 8) and %.2f (b = 16) times late's", atWorst(eight), atWorst(sixteen)), Agrees: max(atWorst(eight), atWorst(sixteen)) <= 1.03,
			Why: "on open load the line is short: a place is known only after its scout has come by, and tokens take three delays from place to place",
		},
		{
			What: "nor are those of the written line", Quoted: "the same", Found: fmt.Sprintf("mean wait at worst %.2f times late's", atWorst(written)), Agrees: atWorst(written) <= 1.03,
			Why: "see the table",
		},
	}
}
