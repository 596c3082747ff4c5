package fuzz

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/lab/cluster"
)

// Mode says what a run is to show.
type Mode string

// The modes.
const (
	Safety   Mode = "safety"
	Liveness Mode = "liveness"
)

// Scenario is a run to be. It follows from its seed, but for what Shrink has
// taken away.
type Scenario struct {
	Seed    uint64
	Mode    Mode
	Hosts   int
	Members int // of the hosts, at the beginning
	K       int
	Early   bool
	Tickets bool // some are taken
	// Delay is the network's: Base, and an exponential part.
	Base, Extra time.Duration
	Ops         []Op
	// End is when the faults end.
	End time.Duration

	// keep tells which of the seed's operations are left; nil: all.
	keep []int
}

// Kind of an operation.
type Kind string

// The operations.
const (
	OpRequest Kind = "request" // Host, Hold, Patience
	OpTicket  Kind = "ticket"  // Host, Hold, Patience: its time to live
	OpKill    Kind = "kill"
	OpStart   Kind = "start"
	OpLeave   Kind = "leave"
	OpPause   Kind = "pause"
	OpResume  Kind = "resume"
	OpCut     Kind = "cut"    // From and To: sets of hosts, as bits
	OpHeal    Kind = "heal"   // the same
	OpBar     Kind = "bar"    // no new connections; the same
	OpUnbar   Kind = "unbar"  // the same
	OpMute    Kind = "mute"   // reports go nowhere; the same
	OpUnmute  Kind = "unmute" // the same
	OpLose    Kind = "lose"   // half of the letters are lost; the same
	OpUnlose  Kind = "unlose" // the same
	OpSlow    Kind = "slow"   // Host and To, Hold: by how much
	OpSetK    Kind = "k"      // K
	OpRate    Kind = "rate"   // Host, Rate: of its clock
	OpStep    Kind = "step"   // Host, Hold: of its wall clock
	OpElect   Kind = "elect"
	OpSuspect Kind = "suspect"
	OpRecover Kind = "recover"
)

// Op is one operation.
type Op struct {
	At   time.Duration
	Kind Kind
	Host int
	// On lets it wait, from At on, for the next message of this kind, and
	// happen to its receiver, just before it or (After) just after; with Here
	// for the next one that Host gets.
	On    string
	After bool
	Here  bool

	Hold, Patience time.Duration
	From, To       uint
	K              int
	Rate           float64
}

// String formats the operation for people.
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs %s", o.At.Seconds(), o.Kind)
	switch o.Kind {
	case OpRequest, OpTicket:
		fmt.Fprintf(&b, " host=%d hold=%v", o.Host, o.Hold)
		if o.Patience > 0 {
			fmt.Fprintf(&b, " patience=%v", o.Patience)
		}
	case OpCut, OpHeal, OpBar, OpUnbar, OpMute, OpUnmute, OpLose, OpUnlose:
		fmt.Fprintf(&b, " from=%b to=%b", o.From, o.To)
	case OpSlow, OpStep:
		fmt.Fprintf(&b, " host=%d by=%v", o.Host, o.Hold)
	case OpSetK:
		fmt.Fprintf(&b, "=%d", o.K)
	case OpRate:
		fmt.Fprintf(&b, " host=%d rate=%.3f", o.Host, o.Rate)
	case OpRecover:
	default:
		fmt.Fprintf(&b, " host=%d", o.Host)
	}
	if o.On != "" {
		when := "before"
		if o.After {
			when = "after"
		}
		who := "who gets it"
		if o.Here {
			who = fmt.Sprintf("host %d", o.Host)
		}
		fmt.Fprintf(&b, " (%s, %s the next %s)", who, when, o.On)
	}
	return b.String()
}

const (
	maxHosts    = 9
	maxK        = 5
	maxRequests = 300
	lease       = 3 * time.Second
)

// New makes the scenario of a seed.
func New(seed uint64, mode Mode) *Scenario {
	r := rand.New(rand.NewPCG(seed, 11))
	s := &Scenario{Seed: seed, Mode: mode, Hosts: 2 + r.IntN(maxHosts-1), K: 1 + r.IntN(maxK), Early: r.IntN(2) == 0}
	s.Members = 1 + r.IntN(s.Hosts)
	s.Base = []time.Duration{200 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}[r.IntN(3)]
	s.Extra = []time.Duration{0, s.Base / 4, 3 * s.Base}[r.IntN(3)]
	s.End = time.Duration(4+r.IntN(16)) * time.Second
	g := generator{Scenario: s, r: r}
	g.requests()
	g.faults()
	g.tickets(rand.New(rand.NewPCG(seed, 12)))
	slices.SortStableFunc(s.Ops, func(a, b Op) int { return int(a.At - b.At) })
	return s
}

type generator struct {
	*Scenario
	r *rand.Rand
}

func (g *generator) any() time.Duration { return time.Duration(g.r.Int64N(int64(g.End))) }

func (g *generator) add(o Op) { g.Ops = append(g.Ops, o) }

// requests come in a stream that the tokens can about serve, now and then many at
// once.
func (g *generator) requests() {
	hold := []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond}[g.r.IntN(3)]
	load := 0.3 + 1.5*g.r.Float64()
	n := int(load * float64(g.K) * g.End.Seconds() / hold.Seconds())
	if n > maxRequests {
		n, hold = maxRequests, hold*time.Duration(n)/maxRequests
	}
	for range n {
		o := Op{At: g.any(), Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: time.Duration(g.r.ExpFloat64() * float64(hold))}
		switch g.r.IntN(12) {
		case 0:
			o.Patience = time.Duration(g.r.ExpFloat64() * float64(hold))
		case 1:
			o.Hold *= 10
		case 2:
			if g.r.IntN(4) == 0 { // longer than any lease
				o.Hold = time.Duration(g.r.ExpFloat64() * 2 * float64(lease))
			}
		}
		for range 1 + 6*(g.r.IntN(30)/29) {
			g.add(o)
		}
	}
}

// tickets are taken in a third of the scenarios, and where a fault wants some.
func (g *generator) tickets(r *rand.Rand) {
	if r.IntN(3) > 0 && !g.Tickets {
		return
	}
	g.Tickets = true
	for range 1 + r.IntN(24) {
		g.add(Op{
			At: time.Duration(r.Int64N(int64(g.End))), Kind: OpTicket, Host: r.IntN(g.Hosts),
			Hold:     time.Duration(r.ExpFloat64() * float64(time.Second)),
			Patience: time.Second + time.Duration(r.Int64N(int64(3*time.Second))),
		})
	}
}

// faults of a few kinds happen, so that each kind is met with few others, too.
func (g *generator) faults() {
	kinds := []func(){
		g.restart, g.pause, g.partition, g.spike, g.changeK, g.join, g.laggard, g.leave, g.clocks, g.elect, g.suspect, g.recover, g.limit, g.headless,
		g.partialHeal, g.refuse, g.mute, g.lose, g.oneWay, g.flap, g.promised,
	}
	chosen := g.r.Perm(len(kinds))[:1+g.r.IntN(4)]
	for range 1 + g.r.IntN(10) {
		kinds[chosen[g.r.IntN(len(chosen))]]()
	}
}

// point adds an operation at any moment, half of the time next to a message.
func (g *generator) point(o Op) Op {
	o.At, o.Host = g.any(), g.r.IntN(g.Hosts)
	if g.r.IntN(2) == 0 {
		kinds := cluster.Kinds
		if g.r.IntN(2) == 0 { // those that much depends on
			kinds = []string{"baton", "token", "grant", "report", "answer"}
		}
		o.On, o.After = kinds[g.r.IntN(len(kinds))], g.r.IntN(2) == 0
	}
	g.add(o)
	return o
}

// span is how long a fault lasts: half of the time below a lease, else above.
func (g *generator) span() time.Duration {
	if g.r.IntN(2) == 0 {
		return time.Duration(g.r.ExpFloat64() * float64(lease) / 5)
	}
	return lease + time.Duration(g.r.ExpFloat64()*float64(lease))
}

func (g *generator) restart() {
	o := g.point(Op{Kind: OpKill})
	g.add(Op{At: o.At + g.span(), Kind: OpStart, Host: o.Host})
}

func (g *generator) pause() {
	o := g.point(Op{Kind: OpPause})
	g.add(Op{At: o.At + g.span(), Kind: OpResume, Host: o.Host})
}

func (g *generator) partition() {
	all := uint(1)<<g.Hosts - 1
	side := uint(g.r.IntN(int(all) + 1))
	o := Op{At: g.any(), Kind: OpCut, From: side, To: all &^ side}
	if g.r.IntN(4) == 0 { // any shape
		o.From, o.To = uint(g.r.IntN(int(all)+1)), uint(g.r.IntN(int(all)+1))
	}
	until := o.At + g.span()
	back := o
	back.From, back.To = o.To, o.From
	oneWay := g.r.IntN(4) == 0
	for _, o := range []Op{o, back} {
		g.add(o)
		o.At, o.Kind = until, OpHeal
		g.add(o)
		if oneWay {
			return
		}
	}
}

func (g *generator) spike() {
	o := Op{At: g.any(), Kind: OpSlow, Host: g.r.IntN(g.Hosts), To: uint(g.r.IntN(g.Hosts)), Hold: g.span() / 4}
	g.add(o)
	o.At, o.Hold = o.At+g.span(), 0
	g.add(o)
}

func (g *generator) changeK() { g.add(Op{At: g.any(), Kind: OpSetK, K: 1 + g.r.IntN(maxK)}) }

func (g *generator) join() {
	g.add(Op{At: g.any(), Kind: OpStart, Host: g.r.IntN(g.Hosts)})
}

// laggard is a gateway that learns late of another one that comes back, while both want
// slots: others, who have heard of it, pass its requests on.
func (g *generator) laggard() {
	at, late := g.any()/2, 1+g.r.IntN(g.Hosts-1)
	back := 1 + (late+g.r.IntN(g.Hosts-1))%(g.Hosts-1)
	g.add(Op{At: at, Kind: OpKill, Host: back})
	at += lease
	o := Op{At: at, Kind: OpSlow, To: uint(late), Hold: lease / 3}
	g.add(o) // from host 0, which leads at first
	g.add(Op{At: at + lease/30, Kind: OpStart, Host: back})
	o.At, o.Hold = at+lease, 0
	g.add(o)
	for i := range 60 {
		asked := at + time.Duration(g.r.Int64N(int64(lease/2)))
		g.add(Op{At: asked, Kind: OpRequest, Host: []int{late, back}[i%2], Hold: g.Base})
	}
}

// limit is a gateway that is busy and gets lost, with everything against its lease:
// its clock is slow, the others' are fast, and its last answers came late.
func (g *generator) limit() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	for other := range g.Hosts {
		rate := 1.09
		if other == host {
			rate = 0.92
		} else {
			g.add(Op{At: at, Kind: OpSlow, Host: other, To: uint(host), Hold: lease * 3 / 20})
		}
		g.add(Op{At: at, Kind: OpRate, Host: other, Rate: rate})
	}
	gone := at + lease/3 + time.Duration(g.r.Int64N(int64(lease/3)))
	g.busy(gone-lease/10, host)
	o := Op{At: gone, Kind: OpPause, Host: host, On: "grant", After: true, Here: true}
	if g.r.IntN(2) == 0 {
		g.add(o)
		g.add(Op{At: gone + lease + lease/2, Kind: OpResume, Host: host})
		return
	}
	o.Kind = OpCut
	g.apart(o, 1<<host, gone+2*lease)
}

// busy is a gateway with requests that take longer than its lease, and others
// behind them.
func (g *generator) busy(at time.Duration, host int) {
	for i := range 3 * g.K {
		hold := []time.Duration{2 * lease, lease + lease/5, lease / 30}[i/g.K]
		g.add(Op{At: at, Kind: OpRequest, Host: host, Hold: hold})
	}
}

// apart cuts a side off from all the others, as o says when, until an instant.
func (g *generator) apart(o Op, side uint, until time.Duration) {
	others := (uint(1)<<g.Hosts - 1) &^ side
	for range 2 {
		o.From, o.To = side, others
		g.add(o)
		g.add(Op{At: until, Kind: OpHeal, Host: o.Host, From: o.From, To: o.To})
		side, others = others, side
	}
}

// promised is a gateway that is cut off together with a holder whose ticket has its slot,
// while the others have requests for it. Until its own lease is over it may go on telling
// the holder that the ticket lives.
func (g *generator) promised() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	g.Tickets = true
	for range g.K {
		g.add(Op{At: at, Kind: OpTicket, Host: host, Hold: 4 * lease, Patience: time.Second + time.Duration(g.r.Int64N(int64(lease)))})
	}
	for range 20 * g.K {
		g.add(Op{At: at + lease/3, Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: lease / 5})
	}
	g.apart(Op{At: at + lease/3, Kind: OpCut}, 1<<host, at+6*lease)
}

// headless is a cluster that loses its first leader together with a busy gateway,
// or with which that one is cut off.
func (g *generator) headless() {
	at, host := g.any(), g.r.IntN(g.Hosts)
	g.busy(at-lease/10, host)
	o := Op{At: at, Kind: OpCut, Host: host}
	if g.r.IntN(2) == 0 {
		g.apart(o, 1|1<<host, at+2*lease)
		return
	}
	g.apart(o, 1<<host, at+2*lease)
	g.add(Op{At: at, Kind: OpKill, Host: 0})
}

// all is the set of all hosts.
func (g *generator) all() uint { return uint(1)<<g.Hosts - 1 }

// host is the set of one of them.
func (g *generator) host() uint { return 1 << g.r.IntN(g.Hosts) }

// lasts returns when a fault that began then ends; half of them never do.
func (g *generator) lasts(at time.Duration) time.Duration {
	if g.r.IntN(2) == 0 {
		return g.End + time.Hour
	}
	return at + g.span()
}

// partialHeal cuts everything for a while and then heals all but one link.
func (g *generator) partialHeal() {
	at := g.any() / 2
	until := at + g.span()
	a, b := g.host(), g.host()
	for _, o := range []Op{
		{At: at, Kind: OpCut, From: g.all(), To: g.all()},
		{At: until, Kind: OpHeal, From: g.all(), To: g.all()},
		{At: until, Kind: OpCut, From: a, To: b},
		{At: until, Kind: OpCut, From: b, To: a},
	} {
		g.add(o)
	}
	healed := g.lasts(until)
	g.add(Op{At: healed, Kind: OpHeal, From: a, To: b})
	g.add(Op{At: healed, Kind: OpHeal, From: b, To: a})
}

// refuse is links that keep old connections and refuse new ones: from one gateway to
// another, to all, or from all to one. Then something else goes wrong.
func (g *generator) refuse() { g.limited(OpBar, OpUnbar) }

// mute is the same for reports.
func (g *generator) mute() { g.limited(OpMute, OpUnmute) }

// lose is the same for letters of which half are lost.
func (g *generator) lose() { g.limited(OpLose, OpUnlose) }

func (g *generator) limited(begin, end Kind) {
	o := Op{At: g.any() / 2, Kind: begin, From: g.host(), To: g.host()}
	switch g.r.IntN(3) {
	case 0:
		o.From = g.all()
	case 1:
		o.To = g.all()
	}
	g.add(o)
	o.At, o.Kind = g.lasts(o.At), end
	g.add(o)
	[]func(){g.restart, g.pause, g.recover, g.suspect, g.changeK}[g.r.IntN(5)]()
}

// oneWay is a link, or all of a gateway's, on which nothing passes in one direction.
func (g *generator) oneWay() {
	o := Op{At: g.any(), Kind: OpCut, From: g.host(), To: g.host()}
	switch g.r.IntN(4) {
	case 0:
		o.From = g.all()
	case 1:
		o.To = g.all()
	}
	g.add(o)
	o.At, o.Kind = g.lasts(o.At), OpHeal
	g.add(o)
}

// flap is a link that comes and goes.
func (g *generator) flap() {
	a, b := g.host(), g.host()
	period := time.Duration(g.r.ExpFloat64() * float64(lease) / 3)
	for at := g.any(); at < g.End; at += 2*period + lease/30 {
		for _, side := range [][2]uint{{a, b}, {b, a}} {
			g.add(Op{At: at, Kind: OpCut, From: side[0], To: side[1]})
			g.add(Op{At: at + period, Kind: OpHeal, From: side[0], To: side[1]})
		}
	}
}

func (g *generator) leave() { g.point(Op{Kind: OpLeave}) }

// clocks run wrong within what leases allow, and wall clocks jump.
func (g *generator) clocks() {
	g.add(Op{At: g.any(), Kind: OpRate, Host: g.r.IntN(g.Hosts), Rate: 0.91 + 0.18*g.r.Float64()})
	g.add(Op{At: g.any(), Kind: OpStep, Host: g.r.IntN(g.Hosts), Hold: time.Duration(g.r.Int64N(int64(time.Hour))) - time.Hour/2})
}

func (g *generator) elect()   { g.add(Op{At: g.any(), Kind: OpElect, Host: g.r.IntN(g.Hosts)}) }
func (g *generator) suspect() { g.point(Op{Kind: OpSuspect}) }

// recover begins an epoch while clients come and leave.
func (g *generator) recover() {
	o := g.point(Op{Kind: OpRecover})
	for range 2 * g.K {
		came := o.At - time.Duration(g.r.Int64N(int64(20*g.Base)))
		g.add(Op{At: came, Kind: OpRequest, Host: g.r.IntN(g.Hosts), Hold: g.Base, Patience: time.Duration(g.r.Int64N(int64(40 * g.Base)))})
	}
}

// Keep returns the scenario with only these of the seed's operations.
func (s *Scenario) Keep(ops []int) *Scenario {
	whole := New(s.Seed, s.Mode)
	kept := *s
	kept.keep, kept.Ops = ops, nil
	for _, i := range ops {
		if i >= 0 && i < len(whole.Ops) {
			kept.Ops = append(kept.Ops, whole.Ops[i])
		}
	}
	return &kept
}

// kept returns which of the seed's operations are left.
func (s *Scenario) kept() []int {
	if s.keep != nil {
		return s.keep
	}
	all := make([]int, len(s.Ops))
	for i := range all {
		all[i] = i
	}
	return all
}

// Args returns what `kgate lab replay` needs to play the scenario.
func (s *Scenario) Args() string {
	args := fmt.Sprintf("%d --mode %s", s.Seed, s.Mode)
	whole := New(s.Seed, s.Mode)
	if s.Hosts != whole.Hosts {
		args += fmt.Sprintf(" --hosts %d", s.Hosts)
	}
	if s.keep != nil {
		args += " --keep " + Ranges(s.keep)
	}
	return args
}

// Ranges writes ascending numbers as 0-3,7; none as "none".
func Ranges(ns []int) string {
	if len(ns) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(ns); {
		j := i
		for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
			j++
		}
		part := strconv.Itoa(ns[i])
		if j > i {
			part += "-" + strconv.Itoa(ns[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// maxOps bounds the operations that ParseRanges takes.
const maxOps = 1 << 20

// ParseRanges reads what [Ranges] has written.
func ParseRanges(text string) ([]int, error) {
	ns := []int{}
	if text == "none" {
		return ns, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		if err != nil {
			return nil, fmt.Errorf("fuzz: %q is no list of operations like 0-3,7", text)
		}
		to, err := strconv.Atoi(high)
		if err != nil || to < from || from < 0 || to > maxOps {
			return nil, fmt.Errorf("fuzz: %q is no list of operations like 0-3,7", text)
		}
		for n := from; n <= to; n++ {
			ns = append(ns, n)
		}
	}
	return ns, nil
}

// WithHosts returns the scenario with fewer hosts. Operations of the others are
// left out.
func (s *Scenario) WithHosts(n int) *Scenario {
	fewer := *s
	fewer.Hosts, fewer.Members = n, min(s.Members, n)
	keep := s.kept()
	fewer.keep, fewer.Ops = nil, nil
	for i, o := range s.Ops {
		if o.Host < n && (o.Kind != OpSlow || int(o.To) < n) {
			fewer.Ops = append(fewer.Ops, o)
			fewer.keep = append(fewer.keep, keep[i])
		}
	}
	return &fewer
}
