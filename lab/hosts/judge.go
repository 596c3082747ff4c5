package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// ErrAgreement means that the processes do not agree on what was agreed on.
var ErrAgreement = errors.New("agreement is broken")

// judge holds what all processes say against what a view, a lease and a leader promise.
type judge struct {
	leaders map[uint64]core.ID     // by term
	agreed  map[uint64]string      // digest by index
	views   map[uint64]string      // by number
	expired map[kmutex.Node]uint64 // in which view
	newest  *views.View
}

func newJudge() judge {
	return judge{
		leaders: make(map[uint64]core.ID), agreed: make(map[uint64]string), views: make(map[uint64]string),
		expired: make(map[kmutex.Node]uint64), newest: new(views.View),
	}
}

func (h *Host) breach(format string, args ...any) {
	h.Fail(fmt.Errorf("%w: %s: "+format, append([]any{ErrAgreement, h.Name}, args...)...))
}

// judgeCore holds a process against what all have in common.
func (h *Host) judgeCore() {
	j, c := &h.judge, h.Core
	if c.Leads() {
		term := c.Term()
		if other, known := j.leaders[term]; known && other != c.ID() {
			h.breach("term %d has two leaders", term)
		} else if !known {
			h.Tracef("leads term %d", term)
			j.leaders[term] = c.ID()
		}
	}
	_, point := c.Applied()
	if have, known := j.agreed[point.Index]; !known {
		j.agreed[point.Index] = string(point.Digest)
	} else if have != string(point.Digest) {
		h.breach("entry %d is not what was agreed on", point.Index)
	}
}

// published compares a view with the other hosts' views; in large worlds only by the digests of the
// entries.
func (h *Host) published(v *views.View) {
	j := &h.judge
	if len(h.hosts) <= 16 {
		data, err := json.Marshal([]any{v.Members, v.Lost, v.Pools})
		if err != nil {
			panic(err) // numbers and texts always encode
		}
		if have, known := j.views[v.Number]; known && have != string(data) {
			h.breach("view %d differs:\n%s\n%s", v.Number, have, data)
		}
		j.views[v.Number] = string(data)
	}
	if v.Number > j.newest.Number {
		j.newest = v
		h.Tracef("view %d: %v", v.Number, v.Members)
	}
	for _, l := range v.Lost {
		if _, known := j.expired[l.Node]; !known && !l.Leased && !l.Witness {
			j.expired[l.Node] = v.Number
			h.overlaps(l.Node)
		}
	}
}

// overlaps looks for who stands though its lease is over.
func (w *World) overlaps(node kmutex.Node) {
	for _, h := range w.hosts {
		if h.Standing.Node == node && h.Stands() && !w.Paused(h.Index) {
			h.breach("it stands as %d until %v from now, and view %d says that its lease is over", node, h.Standing.Until-h.Clock(), w.judge.expired[node])
		}
	}
}

// View returns the newest view of all.
func (w *World) View() *views.View { return w.judge.newest }

// Elected returns how many terms had a leader.
func (w *World) Elected() int { return len(w.judge.leaders) }

// Leader returns the host that leads, as far as it knows itself, in the newest term; nil: none.
func (w *World) Leader() *Host {
	var best *Host
	for _, h := range w.hosts {
		if h.Works() && h.Core.Leads() && (best == nil || h.Core.Term() > best.Core.Term()) {
			best = h
		}
	}
	return best
}

// Voters returns the hosts that vote, by the newest log of any process, and the number of votes, which
// can be larger: the vote of a process without a disk ends with it, and a process that has not yet heard
// of the cluster that others founded with it cannot use its vote.
func (w *World) Voters() (hosts []int, votes int) {
	if newest := w.newest(); newest != nil {
		return w.among(newest.Core.Voters())
	}
	return nil, 0
}

// Majority reports that hosts have a majority of the voters: while these change, of those before, too.
func (w *World) Majority(in func(host int) bool) bool {
	newest := w.newest()
	if newest == nil {
		return false
	}
	most := func(ids []core.ID) bool {
		hosts, votes := w.among(ids)
		return 2*len(slices.DeleteFunc(hosts, func(i int) bool { return !in(i) })) > votes
	}
	before := newest.Core.Outgoing()
	return most(newest.Core.Voters()) && (len(before) == 0 || most(before))
}

// among returns the hosts whose processes vote if these do, and how many these are.
func (w *World) among(ids []core.ID) (hosts []int, votes int) {
	for i, h := range w.hosts {
		if slices.Contains(ids, h.id) && (h.Core == nil && !h.Memory || h.Core != nil && len(h.Core.Voters()) > 0) {
			hosts = append(hosts, i)
		}
	}
	return hosts, len(ids)
}

// newest returns the host whose process has applied most.
func (w *World) newest() *Host {
	var newest *Host
	for _, h := range w.hosts {
		if h.Core != nil && (newest == nil || newest.Applied() < h.Applied()) {
			newest = h
		}
	}
	return newest
}

// Applied returns how much of the log the host's process has applied; 0: none runs.
func (h *Host) Applied() uint64 {
	if h.Core == nil {
		return 0
	}
	at, _ := h.Core.Applied()
	return at.Index
}

// MayLose reports whether a process may end for good: a process without a disk takes its vote along, so
// the others must be able to give the vote to another.
func (w *World) MayLose(host int) bool {
	h, l := w.hosts[host], w.Leader()
	if !h.Memory || h.Core == nil {
		return true
	}
	if l == nil || l.Core.Changing() {
		return false
	}
	voters, votes := w.Voters()
	for _, v := range voters {
		if o := w.hosts[v]; !o.Works() || o.Core.Leader() != l.Core.ID() || o.leaving || !slices.Equal(o.Core.Voters(), l.Core.Voters()) || len(o.Core.Outgoing()) > 0 {
			return false
		}
	}
	return len(voters) == votes && (votes > 2 || votes == 1 && voters[0] != host)
}
