package views

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// state is what the log amounts to: a pure function of its entries.
type state struct {
	Format int `json:"format"`
	View       // the next one
	// Applied is what led to this state.
	Applied Checkpoint `json:"applied"`
}

// Apply carries out one committed command. It reports whether the view
// changed; then its number is one higher.
func (s *state) Apply(index uint64, c Command) (bool, error) {
	var changed bool
	var err error
	switch {
	case c.Found != nil:
		changed, err = s.found(*c.Found)
	case c.Join != nil:
		changed, err = s.join(index, *c.Join)
	case c.Remove != nil:
		changed = s.remove(index, *c.Remove)
	case c.Suspend != nil:
		changed = s.suspend(index, *c.Suspend)
	case c.Expire != nil:
		changed = s.expire(index, *c.Expire)
	case c.Return != nil:
		changed, err = s.giveBack(index, *c.Return)
	case c.Define != nil:
		changed, err = s.define(index, *c.Define)
	case c.SetK != nil:
		changed, err = s.setK(index, *c.SetK)
	case c.SetRate != nil:
		changed, err = s.setRate(index, *c.SetRate)
	case c.SetServers != nil:
		changed, err = s.setServers(index, *c.SetServers)
	case c.Recover != nil:
		changed, err = s.recover(index, *c.Recover)
	case c.UseTickets != nil:
		changed, err = s.useTickets(index, *c.UseTickets)
	default:
		err = fmt.Errorf("%w: an empty command", ErrCommand)
	}
	if changed {
		s.Number++
	}
	return changed, err
}

func (s *state) found(c Found) (bool, error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	if s.Cluster != "" {
		return false, nil
	}
	s.Cluster, s.Lease, s.Founded = c.Cluster, c.Lease, c.At
	return true, nil
}

func (s *state) join(index uint64, c Join) (bool, error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	old := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == c.Name })
	if old >= 0 && s.Members[old].Boot == c.Boot {
		m := &s.Members[old]
		if m.PeerAddr == c.PeerAddr && m.Server == c.Server {
			return false, nil
		}
		m.PeerAddr, m.Server = c.PeerAddr, c.Server
		return true, nil
	}
	if slices.ContainsFunc(s.Lost, func(l Lost) bool { return l.Name == c.Name && l.Boot == c.Boot }) {
		return false, fmt.Errorf("%w: %s/%s is lost and must come back as another incarnation", ErrCommand, c.Name, c.Boot)
	}
	if old < 0 && len(s.Members) >= maxMembers {
		return false, fmt.Errorf("%w: there are %d gateways already, no more are allowed", ErrCommand, len(s.Members))
	}
	// The index grows with the log, so the order of Node is kept.
	s.Members = append(s.Members, Member{
		Node: kmutex.Node(index), Name: c.Name, PeerAddr: c.PeerAddr,
		Boot: c.Boot, Server: c.Server, Status: StatusAlive, Witness: c.Witness,
	})
	moved := s.poolSet(func(p *Pool) bool { return p.Home == 0 && !c.Witness })
	if old >= 0 {
		maps.Copy(moved, s.lose(index, s.Members[old].Node, true, "it has joined again as another incarnation"))
	}
	if c.Voided != 0 && s.lostAs(c.Voided, c.Name) {
		s.unlease(c.Voided, moved)
	}
	s.findSuccessors()
	s.beginEpochs(index, moved)
	return true, nil
}

func (s *state) define(index uint64, c Define) (bool, error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	at, known := findPool(s.Pools, c.Name)
	if known {
		return false, nil
	}
	if len(s.Pools) >= maxPools {
		return false, fmt.Errorf("%w: there are %d pools already, no more are allowed", ErrCommand, len(s.Pools))
	}
	p := Pool{Name: c.Name, K: c.K, Rate: c.Rate, Binding: c.Binding, Reclaim: c.Reclaim, HoldMax: c.HoldMax}
	for _, class := range c.Classes {
		p.Classes, _, _ = withK(p.Classes, class.Upstream, class.K)
		p.Classes[len(p.Classes)-1].Name = class.Name
	}
	s.Pools = slices.Insert(s.Pools, at, p)
	s.beginEpochs(index, pools{at: true})
	return true, nil
}

func (s *state) setK(index uint64, c SetK) (bool, error) {
	at, err := s.pool(c.Name)
	if err == nil {
		err = s.Pools[at].CheckK(c.Upstream, c.K)
	}
	if err != nil {
		return false, err
	}
	if c.Upstream != "" {
		return s.setUpstreamK(index, at, c)
	}
	have := s.Pools[at].K
	if have == c.K {
		return false, nil // the first try of this command, as likely as not
	}
	if c.Was != 0 && have != c.Was {
		return false, fmt.Errorf("%w: k of pool %q is %d, not %d", ErrConflict, c.Name, have, c.Was)
	}
	p := &s.Pools[at]
	switch {
	case c.K <= have || p.Rate == (Rate{}):
		p.Left = p.Parts() // those beyond k come back by and by
		p.K = c.K
	case c.K > p.Parts():
		p.Left = c.K // first everybody divides the rate by the larger k, see Cluster.SetK
	case c.Epoch != p.Epoch || s.owes():
		return false, fmt.Errorf("%w: gateways may still divide the rate of pool %q by less than %d", ErrConflict, c.Name, c.K)
	default:
		p.K = c.K
	}
	if p.Left <= p.K {
		p.Left = 0
	}
	s.beginEpochs(index, pools{at: true})
	return true, nil
}

// owes reports whether the lease of a lost member may still run.
func (s *state) owes() bool {
	return slices.ContainsFunc(s.Lost, func(l Lost) bool { return l.Leased })
}

func (s *state) setRate(index uint64, c SetRate) (bool, error) {
	if err := c.Rate.Check(); err != nil {
		return false, err
	}
	at, err := s.pool(c.Name)
	if err != nil || s.Pools[at].Rate == c.Rate {
		return false, err
	}
	if s.Pools[at].Classes != nil {
		return false, errRateOfClasses
	}
	s.Pools[at].Rate = c.Rate
	s.beginEpochs(index, pools{at: true})
	return true, nil
}

func (s *state) recover(index uint64, c Recover) (bool, error) {
	at, err := s.pool(c.Pool)
	if err != nil || s.Pools[at].Epoch != c.Epoch {
		return false, err
	}
	s.beginEpochs(index, pools{at: true})
	s.Pools[at].Spread = c.Spread
	if c.Whole {
		s.Pools[at].Left = 0
		s.Pools[at].forgetRetired()
	}
	return true, nil
}

func (s *state) useTickets(index uint64, c UseTickets) (bool, error) {
	at, err := s.pool(c.Pool)
	if err != nil {
		return false, err
	}
	p := &s.Pools[at]
	switch {
	case p.Tickets == 0:
		p.Tickets, p.TicketTTL = index, c.TTL
	case p.LongestTTL() >= cmp.Or(c.TTL, admission.MaxTTL):
		return false, nil
	default:
		p.TicketTTL = c.TTL
	}
	return true, nil
}

// view returns a copy of the state as a view.
func (s *state) view() *View {
	v := s.View
	v.Members, v.Lost, v.Pools = slices.Clone(v.Members), slices.Clone(v.Lost), slices.Clone(v.Pools)
	v.ring = sync.OnceValue(func() *chordring.Ring { return ringOf(v.Members) })
	for i := range v.Lost {
		if l := &v.Lost[i]; !s.has(l.Successor) {
			l.Successor = 0
		}
	}
	for i := range v.Pools {
		v.Pools[i].Owed = slices.Clone(v.Pools[i].Owed)
	}
	return &v
}

// stateFormat is the version of a snapshot, and oldestState the oldest that is read:
// since then, fields were only added.
const (
	stateFormat = 7
	oldestState = 3
)

// Encode returns the state as a snapshot.
func (s *state) Encode() ([]byte, error) {
	s.Format = stateFormat
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return data, nil
}

// decodeState reads a snapshot.
func decodeState(data []byte) (state, error) {
	if err := checkVersion(data, "snapshot format", oldestState, stateFormat); err != nil {
		return state{}, err
	}
	var s state
	if err := decodeStrict(data, &s); err != nil {
		return state{}, fmt.Errorf("snapshot: %w", err)
	}
	sorted := slices.IsSortedFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) }) && slices.IsSortedFunc(s.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	if s.Format < oldestState || !sorted {
		return state{}, fmt.Errorf("snapshot: format %d, in order: %t", s.Format, sorted)
	}
	return s, nil
}
