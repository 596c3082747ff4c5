package transport

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

// Whatever the machines send each other can be sent, and arrives as it was: machines
// whose messages go through the codec take turns at random, and none refuses one.
func TestMachinesUnderstandEachOther(t *testing.T) {
	for name, binding := range map[string]func() kmutex.Binding{
		"late":  func() kmutex.Binding { return new(coordinator.Late) },
		"early": func() kmutex.Binding { return new(coordinator.Early) },
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(map[kmutex.Kind]bool)
			for seed := range uint64(200) {
				w := newWired(t, seed, binding)
				for range 300 {
					w.step()
				}
				for kind := range w.seen {
					seen[kind] = true
				}
			}
			want := []kmutex.Kind{kmutex.KindRequest, kmutex.KindBaton, kmutex.KindLocate, kmutex.KindRecall, kmutex.KindTokens}
			if name == "early" {
				want = []kmutex.Kind{kmutex.KindRequest, kmutex.KindBaton, kmutex.KindChild, kmutex.KindToken}
			}
			for _, kind := range want {
				if !seen[kind] {
					t.Errorf("no %v was sent", kind)
				}
			}
		})
	}
}

// wired is machines whose messages go through the codec.
type wired struct {
	t        *testing.T
	r        *rand.Rand
	machines []*kmutex.Machine // of nodes 1, 2, ...
	running  [][]kmutex.Request
	asking   []bool
	last     kmutex.Request
	links    map[[2]kmutex.Node][]kmutex.Message
	seen     map[kmutex.Kind]bool
}

func newWired(t *testing.T, seed uint64, binding func() kmutex.Binding) *wired {
	w := &wired{t: t, r: rand.New(rand.NewPCG(seed, 0)), links: make(map[[2]kmutex.Node][]kmutex.Message), seen: make(map[kmutex.Kind]bool)}
	nodes, k := 2+w.r.IntN(4), 1+w.r.IntN(6)
	w.running, w.asking = make([][]kmutex.Request, nodes), make([]bool, nodes)
	for i := range nodes {
		m := kmutex.New(kmutex.Node(i+1), binding())
		w.machines = append(w.machines, m)
		w.take(i, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: k, Home: 1}, kmutex.Node(i+1))})
	}
	return w
}

// take has a machine take in an event, and sends what it sends.
func (w *wired) take(i int, e kmutex.Event) {
	w.t.Helper()
	fx, err := w.machines[i].Step(&e)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range fx.Messages {
		link := [2]kmutex.Node{m.From, m.To}
		w.links[link] = append(w.links[link], carried(w.t, m.Message))
	}
	for _, g := range fx.Grants {
		w.running[i] = append(w.running[i], g.Request)
	}
	w.asking[i] = w.asking[i] || fx.AskTimer
}

// step lets one thing happen at a node.
func (w *wired) step() {
	i := w.r.IntN(len(w.machines))
	self := kmutex.Node(i + 1)
	switch what := w.r.IntN(6); {
	case what == 0:
		w.last++
		w.take(i, kmutex.Event{Kind: kmutex.EventAcquire, Request: w.last})
	case what == 1 && len(w.running[i]) > 0:
		done := w.running[i][0]
		w.running[i] = w.running[i][1:]
		w.take(i, kmutex.Event{Kind: kmutex.EventRelease, Request: done})
	case what == 2 && w.asking[i]:
		w.asking[i] = false
		w.take(i, kmutex.Event{Kind: kmutex.EventAskDue})
	default:
		from := kmutex.Node(1 + w.r.IntN(len(w.machines)))
		link := [2]kmutex.Node{from, self}
		if len(w.links[link]) == 0 {
			return
		}
		m := w.links[link][0]
		w.links[link] = w.links[link][1:]
		w.seen[m.Kind] = true
		w.take(i, kmutex.Event{Kind: kmutex.EventReceive, From: from, Message: &m})
	}
}

// carried returns a message as the other end gets it, which is as it was sent.
func carried(t *testing.T, m kmutex.Message) (got kmutex.Message) {
	t.Helper()
	b, err := appendMessage(nil, "pool", &m)
	if err == nil {
		_, err = decodeMessage(b, names{}, &got)
	}
	if len(m.Free) == 0 {
		m.Free = nil
	}
	if len(m.Resting) == 0 {
		m.Resting = nil
	}
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("%+v was sent, %+v came: %v", m, got, err)
	}
	return got
}
