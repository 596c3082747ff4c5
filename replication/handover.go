package replication

import (
	"fmt"
	"slices"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Lost is a gateway that is gone, and who takes over what it left.
type Lost struct {
	Node      kmutex.Node
	Successor kmutex.Node // 0 if nobody is there
	// Over: nobody has known its tickets for so long that all have expired. If
	// there still is no replica, nothing that it had given out is held any more.
	Over bool
}

// Report is what a living gateway knows of the tickets that lost ones left.
type Report struct {
	Node kmutex.Node `json:"node"`
	// Absorbed by this gateway's own table, and up to which version that is
	// synced.
	Absorbed []Absorbed `json:"absorbed,omitempty"`
	Synced   uint64     `json:"synced,omitempty"`
	// Replicas are whole tables of lost gateways.
	Replicas []*Delta `json:"replicas,omitempty"`
}

// Validate reports what is wrong with r.
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

// HandOver is what one successor takes over from one lost gateway.
type HandOver struct {
	Owner     kmutex.Node `json:"owner"`
	Successor kmutex.Node `json:"successor"`
	// Records in order of arrival. The granted ones run in the new epoch.
	Records []Record `json:"records,omitempty"`
	// Absorbed are those whose tickets the lost gateway had taken over itself;
	// they are among Records.
	Absorbed []kmutex.Node `json:"absorbed,omitempty"`
	// Tickets are the numbers of the records in the new epoch, in their order. The
	// home gives them when it plans the epoch.
	Tickets []kmutex.Request `json:"tickets,omitempty"`
}

// Validate reports what is wrong with b.
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

// Plan is the plan for what lost gateways left of one pool.
type Plan struct {
	HandOvers []HandOver
	// Unknown are lost gateways of which there is no replica, or no successor: all their
	// successors were lost with them. Slots that they had given out may be held
	// until the longest times to live are over, so the tokens that these may have must be
	// withheld, see [Unknown].
	Unknown []kmutex.Node
	// Settled are lost gateways whose tickets a living one has taken over and
	// synced: nobody needs their replicas any more.
	Settled []kmutex.Node
}

// PlanHandOvers plans, at the pool's home, who takes over what lost gateways left. It
// wants the reports of all living gateways, the gateways lost since the pool
// had its first ticket in the order of their losses, and the tokens that living
// gateways have.
//
// A slot in a replica whose token somebody living has, or which a later use of the
// token is known of, has been released since; it is not handed on. That is for
// sure, for a slot keeps its token for as long as it lasts, in all epochs.
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
	// What a lost gateway had taken over itself is in its own replica, newer; if that
	// one is used. It was taken over by one that was lost later.
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

// dropReleased takes out slots that somebody else has the token of.
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
