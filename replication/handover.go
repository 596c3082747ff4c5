package replication

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Lost is a lost gateway and the successor that takes over its tickets.
type Lost struct {
	Node      kmutex.Node
	Successor kmutex.Node // 0: none
	// Over: the tickets have been unknown for so long that all have expired. If there still is
	// no replica, none of the lost gateway's slots is in use any more.
	Over bool
}

// Report is a living gateway's knowledge of lost gateways' tickets.
type Report struct {
	Node kmutex.Node `json:"node"`
	// Absorbed are the lost gateways in this gateway's own table, which is synced up to version
	// Synced.
	Absorbed []Absorbed `json:"absorbed,omitempty"`
	Synced   uint64     `json:"synced,omitempty"`
	// Replicas are whole tables of lost gateways.
	Replicas []*Delta `json:"replicas,omitempty"`
}

// Validate returns what is wrong with r.
func (r *Report) Validate() error {
	if r.Node == 0 {
		return fmt.Errorf("%w: a report of nobody", errInvalid)
	}
	for _, d := range r.Replicas {
		if d == nil || !d.complete() {
			return fmt.Errorf("%w: node %d reports something other than whole tables", errInvalid, r.Node)
		}
		if err := d.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// HandOver is the tickets that one successor takes over from one lost gateway.
type HandOver struct {
	Owner     kmutex.Node `json:"owner"`
	Successor kmutex.Node `json:"successor"`
	// Records in order of arrival. The granted ones run in the new epoch.
	Records []Record `json:"records,omitempty"`
	// Absorbed are the gateways whose tickets the lost gateway had taken over itself; these
	// tickets are among Records.
	Absorbed []kmutex.Node `json:"absorbed,omitempty"`
	// Tickets are the numbers of the records in the new epoch, in their order. The
	// home gives them when it plans the epoch.
	Tickets []kmutex.Request `json:"tickets,omitempty"`
}

// Validate returns what is wrong with h.
func (h *HandOver) Validate() error {
	if h.Owner == 0 || h.Successor == 0 || slices.Contains(h.Absorbed, 0) {
		return fmt.Errorf("%w: a hand-over from node %d to node %d", errInvalid, h.Owner, h.Successor)
	}
	for i := range h.Records {
		if err := h.Records[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Plan is the plan for the tickets that lost gateways left in one pool.
type Plan struct {
	HandOvers []HandOver
	// Unknown are lost gateways without a replica or without a successor. Their slots may be in
	// use until the longest time to live is over, so the tokens that the slots may have must be
	// withheld, see [Unknown].
	Unknown []kmutex.Node
	// Settled are lost gateways whose tickets a living gateway has taken over and synced: their
	// replicas are no longer needed.
	Settled []kmutex.Node
}

// PlanHandOvers plans, at the pool's home, which successor takes over which tickets of lost
// gateways. It wants the reports of all living gateways, the gateways lost since the pool had its
// first ticket in the order of their losses, and the tokens that living gateways have.
//
// If a living gateway has the token of a slot in a replica, or a later use of the token is known,
// the slot has been released since and is not handed over. This is certain because a slot keeps its
// token for as long as it lasts, through all epochs.
func PlanHandOvers(lost []Lost, running kmutex.TokenSet, reports []Report) Plan {
	var e Plan
	newest := make(map[kmutex.Node]*Delta)
	taken := make(map[kmutex.Node]bool)
	for _, r := range reports {
		for _, a := range r.Absorbed {
			taken[a.Node] = true
		}
		e.Settled = append(e.Settled, synced(r.Absorbed, r.Synced)...)
		for _, d := range r.Replicas {
			if have := newest[d.Owner]; have == nil || have.To < d.To {
				newest[d.Owner] = d
			}
		}
	}
	slices.Sort(e.Settled)
	e.Settled = slices.Compact(e.Settled)
	// A gateway that absorbed another was lost after it. If the absorber's replica is used, it
	// has the absorbed tickets, and newer.
	for _, l := range slices.Backward(lost) {
		if d := newest[l.Node]; d != nil && !taken[l.Node] {
			for _, a := range d.Absorbed {
				taken[a.Node] = true
			}
		}
	}
	for _, l := range lost {
		switch d := newest[l.Node]; {
		case taken[l.Node]:
		case d == nil && l.Over && l.Successor != 0:
			e.HandOvers = append(e.HandOvers, HandOver{Owner: l.Node, Successor: l.Successor}) // nothing, for good
		case d == nil || l.Successor == 0:
			e.Unknown = append(e.Unknown, l.Node)
		default:
			e.HandOvers = append(e.HandOvers, handOver(d, l.Successor))
		}
	}
	e.dropReleased(running)
	return e
}

func handOver(d *Delta, successor kmutex.Node) HandOver {
	b := HandOver{Owner: d.Owner, Successor: successor}
	for _, p := range d.Put {
		b.Records = append(b.Records, p.Record)
	}
	slices.SortFunc(b.Records, compareArrival)
	for _, a := range d.Absorbed {
		b.Absorbed = append(b.Absorbed, a.Node)
	}
	return b
}

// dropReleased takes out slots whose token has another, later use.
func (p *Plan) dropReleased(running kmutex.TokenSet) {
	last := make(map[kmutex.Token]Fence)
	for _, b := range p.HandOvers {
		for _, r := range b.Records {
			if r.State == admission.TicketGranted && last[r.Token].less(r.Fence) {
				last[r.Token] = r.Fence
			}
		}
	}
	for i := range p.HandOvers {
		b := &p.HandOvers[i]
		b.Records = slices.DeleteFunc(b.Records, func(r Record) bool {
			return r.State == admission.TicketGranted && (running.Has(r.Token) || r.Fence.less(last[r.Token]))
		})
	}
}
