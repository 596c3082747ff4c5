package admin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// view is the page's content in the form that its template needs.
type view struct {
	Status
	Pools []poolView
	Ring  *ringView // nil: not drawn
	// Newest events, the newest first.
	Newest []happened
}

// Bounds of the page. The API shows more.
const (
	linesShown = 25 // entries of each pool's line
	slotsShown = 64 // squares; a pool with more has a bar
	ringShown  = 24 // gateways on the drawn ring
)

type poolView struct {
	Pool
	// Slots are the squares, by the kind of slot; nil: too many for squares.
	Slots []string
	// Bar parts of 100, if there are no squares.
	BarUsed, BarWithheld float64
	Spark                *spark // nil: no request was admitted in the last 15 minutes
	Line                 Entries
	// Hidden counts waiting entries that are not listed.
	Hidden int
}

// The kinds of a slot.
const (
	slotUsed     = "used"
	slotWithheld = "withheld"
	slotFree     = "free"
	slotUnknown  = "unknown" // at a gateway that does not answer, if in use
)

func newView(s Status, entries map[string]Entries, now time.Time) *view {
	v := &view{Status: s, Ring: newRing(s), Newest: newestEvents(s.Events, now)}
	for _, p := range s.Pools {
		pv := poolView{Pool: p, Spark: newSpark(p.Fleet.Past.SpreadMillis), Line: entries[p.Name]}
		if pv.Spark != nil {
			pv.Spark.Marks = marksOf(s.Events, p.Name, now)
		}
		pv.Hidden = max(0, p.Fleet.Waiting-len(pv.Line.Waiting))
		if p.K <= slotsShown {
			pv.Slots = squares(p)
		} else {
			pv.BarUsed = 100 * float64(min(p.Fleet.InFlight, p.K)) / float64(p.K)
			pv.BarWithheld = min(100-pv.BarUsed, 100*float64(p.Withheld)/float64(p.K))
		}
		v.Pools = append(v.Pools, pv)
	}
	return v
}

// squares returns one square per slot, and more while more than k are in use after k was lowered.
func squares(p Pool) []string {
	all := make([]string, max(p.K, p.Fleet.InFlight))
	for i := range all {
		switch {
		case i < p.Fleet.InFlight:
			all[i] = slotUsed
		case i < p.Fleet.InFlight+p.Withheld:
			all[i] = slotWithheld
		case i < p.Fleet.InFlight+p.Withheld+p.Unknown():
			all[i] = slotUnknown
		default:
			all[i] = slotFree
		}
	}
	return all[:min(len(all), 2*slotsShown)]
}

// spark is a line drawn from the values of the last 15 minutes.
type spark struct {
	// Marks are the events of that time.
	Marks []mark
	// Line and Area are SVG paths in a box of sparkWidth by sparkHeight.
	Line, Area string
	Now, Max   float64
	HasNow     bool
}

const (
	sparkWidth  = 300
	sparkHeight = 56
)

func newSpark(values []*float64) *spark {
	s := &spark{}
	n := 0
	for _, v := range values {
		if v != nil {
			n++
			s.Max = max(s.Max, *v)
		}
	}
	if n == 0 {
		return nil
	}
	if last := values[len(values)-1]; last != nil {
		s.Now, s.HasNow = *last, true
	}
	const top = 3 // for the line's own width
	top0 := cmp.Or(s.Max, 1)
	var line, area strings.Builder
	for i := 0; i < len(values); i++ {
		begin := i
		for ; i < len(values) && values[i] != nil; i++ {
			x := sparkWidth * float64(i) / float64(max(1, len(values)-1))
			y := top + (sparkHeight-top)*(1-*values[i]/top0)
			if i == begin {
				fmt.Fprintf(&line, "M%.1f %.1f", x, y)
				fmt.Fprintf(&area, "M%.1f %dL%.1f %.1f", x, sparkHeight, x, y)
			} else {
				fmt.Fprintf(&line, "L%.1f %.1f", x, y)
				fmt.Fprintf(&area, "L%.1f %.1f", x, y)
			}
			if i+1 == len(values) || values[i+1] == nil {
				line.WriteString("h.1") // so that a single value shows
				fmt.Fprintf(&area, "L%.1f %dZ", x, sparkHeight)
			}
		}
	}
	s.Line, s.Area = line.String(), area.String()
	return s
}

// ringView is the Chord ring, drawn clockwise from the top.
type ringView struct {
	Width, Height  int
	CX, CY, Radius float64
	Nodes          []ringNode
	HandOvers      []ringHandOver
	// Text describes the drawing to readers who do not see it.
	Text string
}

type ringNode struct {
	Member
	X, Y, LabelX, LabelY float64
	Anchor               string
	// Batons are the pools whose baton it holds.
	Batons []string
}

// ringHandOver is a line from a lost gateway to its successor, which has its tickets now.
type ringHandOver struct{ X1, Y1, X2, Y2 float64 }

func newRing(s Status) *ringView {
	var members []Member
	for _, m := range s.Cluster.Members {
		if m.RingPlace > 0 {
			members = append(members, m)
		}
	}
	if len(members) == 0 || len(members) > ringShown {
		return nil
	}
	slices.SortStableFunc(members, func(a, b Member) int { return cmp.Compare(a.RingPlace, b.RingPlace) })
	r := &ringView{Width: 360, Height: 232, CX: 180, CY: 116, Radius: 74}
	at := make(map[string]int)
	for i, m := range members {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(len(members)))
		const label = 20
		n := ringNode{
			Member: m, X: r.CX + r.Radius*sin, Y: r.CY - r.Radius*cos,
			LabelX: r.CX + (r.Radius+label)*sin, LabelY: r.CY - (r.Radius+label)*cos, Anchor: "middle",
		}
		switch {
		case sin > 0.1:
			n.Anchor = "start"
		case sin < -0.1:
			n.Anchor = "end"
		}
		for _, p := range s.Pools {
			if p.Fleet.Baton == m.Name {
				n.Batons = append(n.Batons, p.Name)
			}
		}
		at[m.Name] = i
		r.Nodes = append(r.Nodes, n)
	}
	for _, n := range r.Nodes {
		if to, on := at[n.Successor]; on && n.Successor != n.Name {
			r.HandOvers = append(r.HandOvers, ringHandOver{n.X, n.Y, r.Nodes[to].X, r.Nodes[to].Y})
		}
	}
	r.Text = ringText(r.Nodes)
	return r
}

func ringText(nodes []ringNode) string {
	var parts []string
	for _, n := range nodes {
		text := n.Name + ", " + n.Word()
		if len(n.Batons) > 0 {
			text += ", holds the baton of " + strings.Join(n.Batons, ", ")
		}
		if n.Successor != "" {
			text += ", inherited by " + n.Successor
		}
		parts = append(parts, text)
	}
	return "Ring, clockwise: " + strings.Join(parts, "; ") + "."
}
