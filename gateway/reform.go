package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/replication"
)

// A pool's epoch moves on with a view that takes a gateway out, gives back what
// one has left, changes k, or mends what an audit found. Then every gateway
// freezes the pool, reports to its home, and goes on as home's install tells it.
// Requests keep their slots and their places meanwhile. All of it can begin anew
// at any point: a yet newer epoch takes the place of this one.

// errSuperseded: the pool has a newer epoch by now.
var errSuperseded = errors.New("gateway: the epoch has been superseded")

// reform is how a pool entered its epoch. It stays until the next epoch, for
// gateways whose answer was lost.
type reform struct {
	cancel  context.CancelFunc // ends this gateway's own part
	began   time.Time
	reason  Reason
	forming *replication.Forming // at home
	err     error
	done    chan struct{} // closed when the epoch is planned, or err is there
}

func (r *reform) supersede() {
	r.cancel()
	r.end(errSuperseded)
}

// end tells those who wait that there is a plan, or why there is none.
func (r *reform) end(err error) {
	select {
	case <-r.done:
	default:
		r.err = err
		close(r.done)
	}
}

// follow brings the pool toward the epoch of spec.
func (p *pool) follow(self kmutex.Node, view *membership.View, spec membership.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see(view)
	if p.machine != nil && spec.Epoch <= p.spec.Epoch {
		p.spec.Tickets = spec.Tickets // the one thing that changes within an epoch
		p.followDesk()
		return
	}
	reason := reasonOf(p.spec, spec)
	if r := p.reform; r != nil {
		if p.spec.Home == p.self && !r.forming.Planned() {
			p.unplanned = append(p.unplanned, p.spec.Epoch)
		}
		r.supersede()
		p.reform = nil
	}
	if p.machine == nil {
		p.machine, p.self = kmutex.New(self, newBinding(spec.Binding)), self
	}
	p.spec = spec
	p.followDesk()
	// Nobody had the pool before its first epoch, and who joins a later one has
	// nothing to report.
	if spec.Epoch == 1 || uint64(self) > spec.Began {
		p.install(&replication.EpochAnswer{Install: kmutex.Genesis(spec.Epoch, spec.K, spec.Home, self)})
		return
	}
	p.rejoin(reason)
}

// followDesk brings the pool's tickets in line with the view, and begins to keep
// them when the first is taken anywhere.
func (p *pool) followDesk() {
	if p.spec.Tickets == 0 {
		return
	}
	if p.desk == nil {
		p.g.openDisk(p.view.Cluster)
		p.desk = newDesk(p, p.g.copiesOf(p.name))
	}
	p.desk.follow(p.view, p.g.cfg.Replicas)
}

// reasonOf tells why a pool entered an epoch.
func reasonOf(before, after membership.Pool) Reason {
	switch {
	case before.Epoch > 0 && before.K != after.K:
		return ReasonK
	case len(after.Owed) > len(before.Owed):
		return ReasonLoss
	case len(after.Owed) < len(before.Owed):
		return ReasonReturn
	default:
		return ReasonOther
	}
}

// rejoin freezes the pool and reports in the background. The caller holds the
// lock.
func (p *pool) rejoin(reason Reason) {
	spec := p.spec
	report, err := p.freeze(spec)
	if err != nil {
		p.log.Error("pool cannot enter its epoch", slog.Uint64("epoch", spec.Epoch), slog.Any("error", err))
		return
	}
	ctx, cancel := context.WithCancel(p.g.ctx)
	p.reform = &reform{
		cancel: cancel, began: p.g.now(), reason: reason, done: make(chan struct{}),
		forming: replication.NewForming(formation(spec), founders(p.view, spec), p.lostOf(p.view, spec)),
	}
	home, _ := p.view.Member(spec.Home)
	p.g.wg.Go(func() {
		defer cancel()
		p.report(ctx, home, report)
	})
}

func formation(spec membership.Pool) kmutex.Formation {
	return kmutex.Formation{Epoch: spec.Epoch, K: spec.K, Home: spec.Home, Owed: len(spec.Owed) > 0}
}

// founders are the members that form the epoch; later ones join it.
func founders(view *membership.View, spec membership.Pool) []kmutex.Node {
	var nodes []kmutex.Node
	for _, m := range view.Members {
		if uint64(m.Node) <= spec.Began {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// freeze ends the pool's epoch and returns what this gateway takes into the
// next. The caller holds the lock.
func (p *pool) freeze(spec membership.Pool) (*replication.EpochReport, error) {
	fx, err := p.machine.Step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: spec.Epoch, K: spec.K})
	if err != nil {
		return nil, err
	}
	for _, t := range fx.Trace {
		p.watch.Moved(t)
	}
	r := &replication.EpochReport{Report: *fx.Report}
	r.Waiting = p.restamp(r.Waiting)
	r.Unplanned = p.unplanned
	r.Free.AddAll(p.salvaged)
	if p.desk != nil {
		r.Left = p.desk.report(p.view)
	}
	return r, nil
}

// salvage takes back the tokens of a message that its receiver, which is lost,
// cannot have received: they have not been away. It comes before the epoch that
// begins with that loss; without it, most tokens would be with a lost
// coordinator, because those released after its end were sent to it.
func (p *pool) salvage(m kmutex.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Epoch != p.installed {
		return
	}
	switch m.Kind {
	case kmutex.KindToken:
		p.salvaged.Add(m.Token)
	case kmutex.KindBaton:
		p.salvaged.AddAll(m.Free)
	default:
	}
}

// restamp splits the waiting tickets into turns by when their places were taken, as
// finely as the line is: to one ask interval. A ticket without a slot has been
// cancelled while an epoch before this one was being formed; its cancel is kept
// aside in the machine, which wants it in its place until then.
func (p *pool) restamp(turns []kmutex.ReportedTurn) []kmutex.ReportedTurn {
	interval := p.askInterval()
	var out []kmutex.ReportedTurn
	for _, turn := range turns {
		for _, t := range turn.Tickets {
			s, n := p.slots[t], len(out)
			switch {
			case s == nil && n == 0:
				out = append(out, kmutex.ReportedTurn{})
			case s != nil && (n == 0 || s.placed.UnixNano()-out[n-1].Stamp > int64(interval)):
				out = append(out, kmutex.ReportedTurn{Stamp: s.placed.UnixNano()})
			}
			last := &out[len(out)-1]
			last.Tickets = append(last.Tickets, t)
		}
	}
	return out
}

// report asks home for this gateway's install until it has it or ctx ends.
func (p *pool) report(ctx context.Context, home membership.Member, r *replication.EpochReport) {
	const longest = 50 * time.Millisecond
	pause := longest / 16 // home may only not have seen the view yet
	for tries := 1; ; tries++ {
		a, err := p.askHome(ctx, home, r)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.machine != nil && p.spec.Epoch == r.Epoch {
				p.install(a)
			}
			return
		}
		if ctx.Err() != nil || errors.Is(err, errSuperseded) {
			return
		}
		if tries == 1 {
			p.log.Warn("pool waits for its home", slog.Uint64("epoch", r.Epoch), slog.String("home", home.Name), slog.Any("error", err))
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, longest)
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool) askHome(ctx context.Context, home membership.Member, r *replication.EpochReport) (*replication.EpochAnswer, error) {
	if home.Node == p.self {
		return p.collect(ctx, r)
	}
	return p.g.sendReport(ctx, home.PeerAddr, p.name, r)
}

// collect takes in one gateway's report, at home, and returns its answer when
// all have reported.
func (p *pool) collect(ctx context.Context, rep *replication.EpochReport) (*replication.EpochAnswer, error) {
	p.mu.Lock()
	r, err := p.admit(rep)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		if r.err != nil {
			return nil, r.err
		}
		return r.forming.Answer(rep.Node), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// admit adds a report to the epoch's; with the last one it plans the epoch.
func (p *pool) admit(rep *replication.EpochReport) (*reform, error) {
	r := p.reform
	switch {
	case rep.Epoch < p.spec.Epoch:
		return nil, errSuperseded
	case rep.Epoch > p.spec.Epoch, p.spec.Home != p.self, r == nil:
		return nil, fmt.Errorf("gateway: epoch %d of pool %q is not being formed here", rep.Epoch, p.name)
	}
	if err := r.forming.Admit(*rep); err != nil {
		r.end(err)
	} else if r.forming.Planned() {
		p.miss(r.forming.Unknown(), p.spec.Epoch)
		if doubled := r.forming.Doubled(); len(doubled) > 0 {
			p.watch.AuditFailed()
			p.log.Error("tokens were in use twice; what is one too many ends with its request", slog.Any("tokens", doubled))
		}
		r.end(nil)
	}
	return r, nil
}

// install begins an epoch. The caller holds the lock.
func (p *pool) install(a *replication.EpochAnswer) {
	in := a.Install
	var refused []kmutex.Ticket
	if p.desk != nil {
		refused = p.desk.inherit(a.Inherit)
	}
	if err := p.try(kmutex.Event{Kind: kmutex.EventInstall, Install: in}); err != nil {
		// It was refused, or something that peers had sent ahead was.
		p.log.Error("pool installed with errors", slog.Uint64("epoch", in.Epoch), slog.Any("error", err))
	}
	if p.machine.Frozen() {
		return
	}
	p.installed, p.tokens, p.withheld = in.Epoch, in.Tokens, in.Withheld
	p.unplanned, p.salvaged, p.trail = nil, nil, nil
	if p.desk != nil {
		p.desk.renew(in.Running, a.Settled)
	}
	for _, t := range refused {
		_ = p.try(kmutex.Event{Kind: kmutex.EventCancel, Ticket: t}) // one without a token is not there
	}
	attrs := []any{
		slog.Uint64("epoch", in.Epoch), slog.Int("k", in.K),
		slog.String("binding", p.spec.Binding), slog.Bool("home", in.Home == p.self),
	}
	if n := in.Withheld.Len(); n > 0 {
		attrs = append(attrs, slog.Int("withheld", n))
	}
	if r := p.reform; r != nil {
		took := p.g.now().Sub(r.began)
		p.watch.Recovered(r.reason, took)
		attrs = append(attrs, slog.String("reason", string(r.reason)), slog.Duration("took", took))
	}
	p.log.Info("pool installed", attrs...)
}
