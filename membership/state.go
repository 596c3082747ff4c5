package membership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kgate/kgate/kmutex"
)

// state is what the log amounts to: a pure function of its entries.
type state struct {
	Format  int      `json:"format"`
	Number  uint64   `json:"number"`
	Cluster string   `json:"cluster"`
	Members []Member `json:"members"`
	Pools   []Pool   `json:"pools"`
}

// apply carries out one committed command. It reports whether the view
// changed; then its number is one higher.
func (s *state) apply(index uint64, c command) (bool, error) {
	var changed bool
	var err error
	switch {
	case c.Found != nil:
		changed, err = s.found(*c.Found)
	case c.Join != nil:
		changed, err = s.join(index, *c.Join)
	case c.Remove != nil:
		changed = s.remove(index, *c.Remove)
	case c.Define != nil:
		changed, err = s.define(index, *c.Define)
	case c.SetK != nil:
		changed, err = s.setK(index, *c.SetK)
	default:
		err = fmt.Errorf("%w: an empty command", ErrCommand)
	}
	if changed {
		s.Number++
	}
	return changed, err
}

func (s *state) found(c foundCommand) (bool, error) {
	if err := checkText("the cluster id", c.Cluster); err != nil {
		return false, err
	}
	if s.Cluster != "" {
		return false, nil
	}
	s.Cluster = c.Cluster
	return true, nil
}

func (s *state) join(index uint64, c joinCommand) (bool, error) {
	if err := c.check(); err != nil {
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
	if old < 0 && len(s.Members) >= MaxMembers {
		return false, fmt.Errorf("%w: there are %d gateways already, no more are allowed", ErrCommand, len(s.Members))
	}
	if old >= 0 {
		s.Members = slices.Delete(s.Members, old, old+1)
	}
	// The index grows with the log, so the order of Node is kept.
	s.Members = append(s.Members, Member{
		Node: kmutex.Node(index), Name: c.Name, PeerAddr: c.PeerAddr,
		Boot: c.Boot, Server: c.Server, Status: StatusAlive,
	})
	if old >= 0 {
		s.beginEpochs(index, func(Pool) bool { return true })
	} else {
		s.beginEpochs(index, func(p Pool) bool { return p.Home == 0 })
	}
	return true, nil
}

func (s *state) remove(index uint64, c removeCommand) bool {
	at := slices.IndexFunc(s.Members, func(m Member) bool { return m.Node == c.Node })
	if at < 0 {
		return false
	}
	s.Members = slices.Delete(s.Members, at, at+1)
	s.beginEpochs(index, func(Pool) bool { return true })
	return true
}

func (s *state) define(index uint64, c defineCommand) (bool, error) {
	if err := c.check(); err != nil {
		return false, err
	}
	at, known := findPool(s.Pools, c.Name)
	if known {
		return false, nil
	}
	if len(s.Pools) >= MaxPools {
		return false, fmt.Errorf("%w: there are %d pools already, no more are allowed", ErrCommand, len(s.Pools))
	}
	s.Pools = slices.Insert(s.Pools, at, Pool{Name: c.Name, K: c.K, Binding: c.Binding})
	s.beginEpochs(index, func(p Pool) bool { return p.Name == c.Name })
	return true, nil
}

func (s *state) setK(index uint64, c setKCommand) (bool, error) {
	if err := checkK(c.K); err != nil {
		return false, err
	}
	at, known := findPool(s.Pools, c.Name)
	if !known {
		return false, fmt.Errorf("%w: there is no pool %q", ErrCommand, c.Name)
	}
	if s.Pools[at].K == c.K {
		return false, nil
	}
	s.Pools[at].K = c.K
	s.beginEpochs(index, func(p Pool) bool { return p.Name == c.Name })
	return true, nil
}

// beginEpochs moves the pools chosen on to their next epoch, with the home
// that the present members make.
func (s *state) beginEpochs(index uint64, chosen func(Pool) bool) {
	if len(s.Pools) == 0 {
		return
	}
	ring := ringOf(s.Members)
	nodes := make(map[string]kmutex.Node, len(s.Members))
	for _, m := range s.Members {
		nodes[m.Name] = m.Node
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; chosen(*p) {
			p.Epoch++
			p.Began = index
			p.Home = nodes[ring.Owner(p.Name)]
		}
	}
}

// view returns a copy of the state as a view.
func (s *state) view() *View {
	return &View{
		Number:  s.Number,
		Cluster: s.Cluster,
		Members: slices.Clone(s.Members),
		Pools:   slices.Clone(s.Pools),
	}
}

// stateFormat is the version of a snapshot.
const stateFormat = 1

func (s *state) encode() ([]byte, error) {
	s.Format = stateFormat
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("membership: encode snapshot: %w", err)
	}
	return data, nil
}

func decodeState(data []byte) (state, error) {
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return state{}, fmt.Errorf("membership: snapshot: %w", err)
	}
	if format.Format > stateFormat {
		return state{}, fmt.Errorf("%w: snapshot format %d, this one knows %d", ErrNewer, format.Format, stateFormat)
	}
	var s state
	if err := decodeStrict(data, &s); err != nil {
		return state{}, fmt.Errorf("membership: snapshot: %w", err)
	}
	sorted := slices.IsSortedFunc(s.Members, func(a, b Member) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	}) && slices.IsSortedFunc(s.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	if s.Format != stateFormat || !sorted {
		return state{}, fmt.Errorf("membership: snapshot: format %d, in order: %t", s.Format, sorted)
	}
	return s, nil
}
