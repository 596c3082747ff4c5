package membership

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// DefinePool makes sure that there is a pool of the given name: it returns nil
// when this gateway's view has one. The first definition wins, so K, Rate, Binding,
// Reclaim (default admission.ReclaimLease) and HoldMax of the view's pool may be others;
// the other fields of the argument do not count. It waits until this gateway is
// in the view, and keeps trying until ctx ends.
func (c *Cluster) DefinePool(ctx context.Context, p Pool) error {
	define := defineCommand{Name: p.Name, K: p.K, Rate: p.Rate, Binding: p.Binding, Reclaim: cmp.Or(p.Reclaim, admission.ReclaimLease), HoldMax: p.HoldMax}
	if err := define.check(); err != nil {
		return err
	}
	known := func(v *View) bool { _, ok := v.Pool(p.Name); return ok }
	// A pool without members would have no home.
	if err := c.Ready(ctx); err != nil {
		return fmt.Errorf("membership: define pool %q: %w", p.Name, err)
	}
	if known(c.View()) {
		return nil
	}
	return c.proposer.agree(ctx, fmt.Sprintf("define pool %q", p.Name), command{Define: &define}, known)
}

// SetK changes the number of tokens of a pool in a new epoch and returns when
// this gateway's view has it. With was other than 0 it fails with ErrConflict
// unless the agreed number is was, or k already. It keeps trying until ctx ends.
//
// In a pool with a rate, a larger number takes two steps: each token carries a part of the
// rate, so all gateways have to divide it by the new number before there are more
// tokens. The first step begins an epoch with the old number. With that epoch, once it has
// begun at all gateways, the second one may follow; with another one it fails with
// ErrConflict, and also while a lost gateway has a lease. See [Pool.Parts].
func (c *Cluster) SetK(ctx context.Context, pool string, k, was int, epoch uint64) error {
	err := checkK(k)
	if err == nil && was != 0 {
		err = checkK(was)
	}
	view := c.View()
	if have, ok := view.Pool(pool); ok && err == nil {
		err = have.Rate.checkParts(k)
	}
	if err != nil {
		return err
	}
	before := view.Number
	return c.proposer.agree(ctx, fmt.Sprintf("set k of pool %q", pool), command{SetK: &setKCommand{Name: pool, K: k, Was: was, Epoch: epoch}}, func(v *View) bool {
		// Somebody else may have set another k right behind.
		have, ok := v.Pool(pool)
		return !ok || have.K == k || v.Number > before
	})
}

// SetRate changes the rate of a pool in a new epoch, and returns when this gateway's view
// has it. A lower rate holds when that epoch has begun at all gateways, and no lost one
// has a lease. It keeps trying until ctx ends.
func (c *Cluster) SetRate(ctx context.Context, pool string, rate Rate) error {
	err, view := rate.check(), c.View()
	if have, ok := view.Pool(pool); ok && err == nil {
		err = rate.checkParts(have.K)
	}
	if err != nil {
		return err
	}
	before := view.Number
	return c.proposer.agree(ctx, fmt.Sprintf("set the rate of pool %q", pool), command{SetRate: &setRateCommand{Name: pool, Rate: rate}}, func(v *View) bool {
		have, ok := v.Pool(pool)
		return !ok || have.Rate == rate || v.Number > before
	})
}

// Why says why an epoch ends that nothing else ends.
type Why struct {
	// Spread: only to spread the free tokens.
	Spread bool
	// Whole: K was lowered, and no more than K tokens are in use any more.
	Whole bool
}

// Recover begins a new epoch of a pool if it still is in the given one, and
// returns when this gateway's view has a later one. It keeps trying until ctx ends.
func (c *Cluster) Recover(ctx context.Context, pool string, epoch uint64, why Why) error {
	return c.proposer.agree(ctx, fmt.Sprintf("recover pool %q", pool), command{Recover: &recoverCommand{Pool: pool, Epoch: epoch, Spread: why.Spread, Whole: why.Whole}}, func(v *View) bool {
		have, ok := v.Pool(pool)
		return !ok || have.Epoch > epoch
	})
}

// UseTickets notes for good that the pool gives out tickets, and returns when
// this gateway's view says so. It keeps trying until ctx ends.
func (c *Cluster) UseTickets(ctx context.Context, pool string) error {
	said := func(v *View) bool {
		have, ok := v.Pool(pool)
		return ok && have.Tickets > 0
	}
	if said(c.View()) {
		return nil
	}
	return c.proposer.agree(ctx, fmt.Sprintf("use tickets in pool %q", pool), command{UseTickets: &useTicketsCommand{Pool: pool}}, said)
}

// Suspend takes the named gateway out of the view as one whose lease may still
// run, and returns when this gateway's view has it. If it is alive it comes back
// as another incarnation. It keeps trying until ctx ends.
func (c *Cluster) Suspend(ctx context.Context, name string) error {
	m, in := c.View().Named(name)
	if !in {
		return fmt.Errorf("%w: there is no gateway %q in the view", ErrCommand, name)
	}
	suspend := suspendCommand{Nodes: []kmutex.Node{m.Node}, Reasons: []string{cutReason("an operator took it out, at " + c.config.Name)}}
	return c.proposer.agree(ctx, "suspend "+name, command{Suspend: &suspend}, func(v *View) bool { _, still := v.Member(m.Node); return !still })
}

// proposer has the leader commit commands, whoever it is, and hands the lead over.
type proposer struct {
	*raftNode
	peers   *peerClient
	leaders *leaderWatch
}

// agree has a command committed, and waits until this gateway's view shows it.
func (p *proposer) agree(ctx context.Context, what string, cmd command, shows func(*View) bool) error {
	if err := p.propose(ctx, cmd); err != nil {
		return fmt.Errorf("membership: %s: %w", what, err)
	}
	return p.await(ctx, shows)
}

// propose has the leader commit a command, over changes of leadership, until
// ctx ends. A command whose answer is lost is proposed again.
func (p *proposer) propose(ctx context.Context, cmd command) error {
	data, err := encodeCommand(cmd)
	if err != nil {
		return err
	}
	pause := 10 * time.Millisecond
	for {
		err := p.proposeOnce(ctx, cmd, data)
		if err == nil || errors.Is(err, ErrCommand) || errors.Is(err, ErrConflict) || errors.Is(err, errNewer) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 250*time.Millisecond)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err, p.Problem())
		case <-p.closing.Done():
			return errClosed
		}
	}
}

func (p *proposer) proposeOnce(ctx context.Context, cmd command, data []byte) error {
	_, leader := p.raft.LeaderWithID()
	switch {
	case leader == "":
		return errNoLeader
	case string(leader) == p.storage.meta.Server && p.leaving.Load() && cmd.Remove != nil:
		// Handed over, but not noticed yet; or the lead came back.
		return errors.Join(errNoLeader, p.handOver(ctx))
	case string(leader) == p.storage.meta.Server:
		return p.applyHere(cmd)
	}
	addr, ok := p.addresses.of(leader)
	if !ok {
		return errNoLeader
	}
	return p.ask(ctx, string(leader), addr, data)
}

// applyHere commits a command as the leader. What a removed gateway had among
// the raft servers is taken away before it learns of it: it closes then, and a
// voter that has closed still counts.
func (p *proposer) applyHere(cmd command) error {
	data, err := encodeCommand(cmd)
	if err != nil {
		return err
	}
	var gone Member
	if cmd.Remove != nil {
		gone, _ = p.View().Member(cmd.Remove.Node)
	}
	began := time.Now()
	future := p.raft.Apply(data, p.callTimeout())
	if err := future.Error(); err != nil {
		return fmt.Errorf("membership: commit: %w", err)
	}
	p.config.Committed(time.Since(began))
	if err, failed := future.Response().(error); failed {
		return err
	}
	// The others learn with the next entry that this one is committed: without it
	// they would only after CommitTimeout.
	_ = p.raft.Barrier(p.callTimeout())
	if gone.Server != "" && gone.Server != p.storage.meta.Server {
		p.ops.Lock()
		defer p.ops.Unlock()
		if err := p.change(step{do: remove, server: raft.ServerID(gone.Server)}); err != nil {
			p.config.Logger.Debug("left to the leader's loop", slog.String("server", gone.Server), slog.Any("error", err))
		}
	}
	return nil
}

// ask sends a command to the leader at an address. It gives up when another one leads.
func (p *proposer) ask(ctx context.Context, leads, addr string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*p.callTimeout())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.leaders.whileLed(ctx, leads, cancel)
	}()
	defer func() {
		cancel()
		<-watched
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+pathCommands, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("membership: ask %s: %w", addr, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if tokens := p.adminTokens(); len(tokens) > 0 {
		request.Header.Set(adminTokenHeader, tokens[0])
	}
	response, err := p.peers.client.Do(request)
	if err != nil {
		return fmt.Errorf("membership: ask %s: %w", addr, err)
	}
	defer response.Body.Close()
	defer drop(response.Body)
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnprocessableEntity:
		var v verdict
		if err := json.NewDecoder(io.LimitReader(response.Body, maxCommand)).Decode(&v); err != nil {
			return fmt.Errorf("membership: ask %s: %w", addr, err)
		}
		return v.err()
	default:
		return fmt.Errorf("%w: %s answered with status %d", raft.ErrNotLeader, addr, response.StatusCode)
	}
}

func (p *proposer) adminTokens() []string {
	if p.config.AdminTokens == nil {
		return nil
	}
	return p.config.AdminTokens()
}

// handOver passes the lead on, if this gateway has it, to one that is alive;
// if that one has no vote yet, it gets one.
func (p *proposer) handOver(ctx context.Context) error {
	for p.raft.State() == raft.Leader {
		err := p.handOverOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(soon):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-p.closing.Done():
			return errClosed
		}
	}
	return nil
}

func (p *proposer) handOverOnce(ctx context.Context) error {
	p.ops.Lock()
	defer p.ops.Unlock()
	peers := p.config.Discovery.Members()
	heir := p.nextLeader(peers)
	if heir.ID == "" {
		return fmt.Errorf("%w: nobody alive to hand over to", errNoLeader)
	}
	if heir.Suffrage != raft.Voter {
		if !p.peers.caughtUp(peers, heir.ID) {
			return fmt.Errorf("%w: %s has not caught up", errNoLeader, heir.ID)
		}
		if err := p.change(step{promote, heir.ID}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.leaders.noteHeir(string(heir.ID))
	if err := p.raft.LeadershipTransferToServer(heir.ID, heir.Address).Error(); err != nil {
		return fmt.Errorf("membership: hand over to %s: %w", heir.ID, err)
	}
	return nil
}

// nextLeader returns the server to hand the lead over to: any that is alive, rather
// one that votes, of these rather a member, and of these rather one that serves. None has an empty ID. It is not always
// the same, since one that others do not get through to hands it over in turn.
func (p *proposer) nextLeader(peers []serfring.Member) raft.Server {
	view, servers := p.View(), slices.Clone(p.servers())
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	var best raft.Server
	most := 0
	for _, s := range servers {
		name := nameOf(s.ID)
		peer, seen := find(peers, name)
		if !seen || peer.Status != serfring.StatusAlive || name == p.config.Name {
			continue
		}
		m, in := view.Named(name)
		rank := 0
		if in && m.Server == string(s.ID) {
			rank += 2
		}
		if s.Suffrage == raft.Voter && (!in || rank == 2) {
			rank += 4
		}
		if !m.Witness {
			rank++
		}
		if rank > most {
			best, most = s, rank
		}
	}
	return best
}

// change carries out one step. The caller holds ops.
func (p *proposer) change(s step) error {
	var future raft.IndexFuture
	switch s.do {
	case promote:
		var addr raft.ServerAddress
		for _, have := range p.servers() {
			if have.ID == s.server {
				addr = have.Address
			}
		}
		if addr == "" {
			return fmt.Errorf("membership: %s is no raft server", s.server)
		}
		future = p.raft.AddVoter(s.server, addr, 0, p.callTimeout())
	case demote:
		future = p.raft.DemoteVoter(s.server, 0, p.callTimeout())
	case remove:
		future = p.raft.RemoveServer(s.server, 0, p.callTimeout())
	case nothing:
		return nil
	default:
		return fmt.Errorf("membership: unknown step %q", s.do)
	}
	if err := future.Error(); err != nil {
		return fmt.Errorf("membership: %s raft server %s: %w", s.do, s.server, err)
	}
	p.config.Logger.Info("raft servers changed", slog.String("change", string(s.do)), slog.String("server", string(s.server)))
	return nil
}

// verdict is the answer to a command.
type verdict struct {
	// Refused says why the command was refused for good; empty if it was not.
	Refused string `json:"refused"`
	// Conflict: it was refused because of what somebody else changed.
	Conflict bool `json:"conflict,omitempty"`
}

// err is what applying the command returned, at the leader; its text already
// says which of the errors it is.
func (v verdict) err() error {
	kind := ErrCommand
	if v.Conflict {
		kind = ErrConflict
	}
	return fmt.Errorf("%w: %s", kind, strings.TrimPrefix(v.Refused, kind.Error()+": "))
}

// drop reads what is left of a body, so that its connection can be used again.
func drop(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxCommand)) }
