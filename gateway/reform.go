package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
)

// A pool's epoch moves on with a view that takes a gateway out or replaces one
// by its next start. Then every gateway freezes the pool, reports to its home
// what it runs and who waits, and goes on as home's install tells it. Requests
// keep their slots and their places meanwhile. All of it can begin anew at any
// point: a yet newer epoch takes the place of this one.

// errSuperseded: the pool has a newer epoch by now.
var errSuperseded = errors.New("gateway: the epoch has been superseded")

// reform is how a pool entered its epoch. It stays until the next epoch, for
// gateways whose answer was lost.
type reform struct {
	cancel context.CancelFunc // ends this gateway's own part
	// At home: the nodes that have to report, and what they have reported.
	awaited  map[kmutex.Node]bool
	reports  []kmutex.Report
	installs map[kmutex.Node]*kmutex.Install
	err      error
	done     chan struct{} // closed when installs or err is there
}

// follow brings the pool toward the epoch of spec.
func (p *pool) follow(self kmutex.Node, view *membership.View, spec membership.Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine != nil && spec.Epoch <= p.spec.Epoch {
		return
	}
	if p.reform != nil {
		p.reform.supersede()
		p.reform = nil
	}
	if p.machine == nil {
		p.machine, p.self = kmutex.New(self, newBinding(spec.Binding)), self
	}
	p.spec = spec
	// Nobody had the pool before its first epoch, and who joins a later one has
	// nothing to report.
	if spec.Epoch == 1 || uint64(self) > spec.Began {
		p.install(kmutex.Genesis(spec.Epoch, spec.K, spec.Home, self))
		return
	}
	p.rejoin(view)
}

func (r *reform) supersede() {
	r.cancel()
	select {
	case <-r.done:
	default:
		r.err = errSuperseded
		close(r.done)
	}
}

// install begins an epoch. The caller holds the lock.
func (p *pool) install(in *kmutex.Install) {
	if err := p.try(kmutex.Event{Kind: kmutex.EventInstall, Install: in}); err != nil {
		// Ours was refused, or something that peers had sent ahead was.
		p.log.Error("pool installed with errors", slog.Uint64("epoch", in.Epoch), slog.Any("error", err))
		return
	}
	p.log.Info("pool installed", slog.Uint64("epoch", in.Epoch), slog.Int("k", in.K),
		slog.String("binding", p.spec.Binding), slog.Bool("home", in.Home == p.self))
}

// rejoin freezes the pool and reports in the background. The caller holds the
// lock.
func (p *pool) rejoin(view *membership.View) {
	spec := p.spec
	report, err := p.freeze(spec)
	if err != nil {
		p.log.Error("pool cannot enter its epoch", slog.Uint64("epoch", spec.Epoch), slog.Any("error", err))
		return
	}
	ctx, cancel := context.WithCancel(p.g.ctx)
	p.reform = &reform{cancel: cancel, awaited: make(map[kmutex.Node]bool), done: make(chan struct{})}
	for _, m := range view.Members {
		if uint64(m.Node) <= spec.Began {
			p.reform.awaited[m.Node] = true
		}
	}
	home, _ := view.Member(spec.Home)
	p.g.wg.Go(func() {
		defer cancel()
		p.report(ctx, home, report)
	})
}

// freeze ends the pool's epoch and returns what this gateway takes into the
// next. The caller holds the lock.
func (p *pool) freeze(spec membership.Pool) (*kmutex.Report, error) {
	fx, err := p.machine.Step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: spec.Epoch, K: spec.K})
	if err != nil {
		return nil, err
	}
	for _, t := range fx.Trace {
		p.watch.Moved(t)
	}
	report := *fx.Report
	report.Waiting = p.restamp(report.Waiting)
	return &report, nil
}

// restamp splits the waiting tickets into turns by their times of arrival, as
// finely as the line is: to one ask interval. A ticket without a slot has been
// cancelled while an epoch before this one was being formed; its cancel is kept
// aside in the machine, which wants it in its place until then.
func (p *pool) restamp(turns []kmutex.ReportedTurn) []kmutex.ReportedTurn {
	interval := p.g.askInterval(p.name)
	var out []kmutex.ReportedTurn
	for _, turn := range turns {
		for _, t := range turn.Tickets {
			s, n := p.slots[t], len(out)
			switch {
			case s == nil && n == 0:
				out = append(out, kmutex.ReportedTurn{})
			case s != nil && (n == 0 || s.since.UnixNano()-out[n-1].Stamp > int64(interval)):
				out = append(out, kmutex.ReportedTurn{Stamp: s.since.UnixNano()})
			}
			last := &out[len(out)-1]
			last.Tickets = append(last.Tickets, t)
		}
	}
	return out
}

// report asks home for this gateway's install until it has it or ctx ends.
func (p *pool) report(ctx context.Context, home membership.Member, report *kmutex.Report) {
	const pause = 50 * time.Millisecond
	for tries := 1; ; tries++ {
		in, err := p.askHome(ctx, home, report)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.spec.Epoch == report.Epoch {
				p.install(in)
			}
			return
		}
		if ctx.Err() != nil || errors.Is(err, errSuperseded) {
			return
		}
		if tries == 1 {
			p.log.Warn("pool waits for its home", slog.Uint64("epoch", report.Epoch), slog.String("home", home.Name), slog.Any("error", err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool) askHome(ctx context.Context, home membership.Member, report *kmutex.Report) (*kmutex.Install, error) {
	if home.Node == p.self {
		return p.collect(ctx, *report)
	}
	return p.g.sendReport(ctx, home.PeerAddr, p.name, report)
}

// collect takes in one gateway's report, at home, and returns its install when
// all have reported.
func (p *pool) collect(ctx context.Context, report kmutex.Report) (*kmutex.Install, error) {
	p.mu.Lock()
	r, err := p.admit(report)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		if r.err != nil {
			return nil, r.err
		}
		return r.installs[report.Node], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// admit adds a report to the epoch's; with the last one it plans the installs.
func (p *pool) admit(report kmutex.Report) (*reform, error) {
	r := p.reform
	switch {
	case report.Epoch < p.spec.Epoch:
		return nil, errSuperseded
	case report.Epoch > p.spec.Epoch, p.spec.Home != p.self, r == nil:
		return nil, fmt.Errorf("gateway: epoch %d of pool %q is not being formed here", report.Epoch, p.name)
	}
	if !r.awaited[report.Node] {
		return r, nil // again, after its first answer was lost, or not asked for
	}
	delete(r.awaited, report.Node)
	r.reports = append(r.reports, report)
	if len(r.awaited) > 0 {
		return r, nil
	}
	installs, err := kmutex.Reform(kmutex.Formation{Epoch: p.spec.Epoch, K: p.spec.K, Home: p.spec.Home}, r.reports)
	r.err = err
	r.installs = make(map[kmutex.Node]*kmutex.Install, len(installs))
	for i, in := range installs {
		r.installs[r.reports[i].Node] = in
	}
	close(r.done)
	return r, nil
}
