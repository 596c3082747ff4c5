package membership

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/peercall"
)

// proposer has the leader commit commands, whoever it is, and hands the lead over.
type proposer struct {
	*raftNode
	peers   *peerClient
	leaders *leaderWatch
}

// agree has a command committed, and waits until this gateway's view shows it.
func (p *proposer) agree(ctx context.Context, what string, cmd views.Command, shows func(*View) bool) error {
	if err := p.propose(ctx, cmd); err != nil {
		return fmt.Errorf("membership: %s: %w", what, err)
	}
	return p.await(ctx, shows)
}

// propose has the leader commit a command, over changes of leadership, until
// ctx ends. A command whose answer is lost is proposed again. People who wait for it are told
// if there is no leader.
func (p *proposer) propose(ctx context.Context, cmd views.Command) error {
	data, err := views.Encode(cmd)
	if err != nil {
		return err
	}
	pause, led := 10*time.Millisecond, time.Now()
	for {
		err := p.proposeOnce(ctx, cmd, data)
		if !errors.Is(err, errNoLeader) {
			led = time.Now()
		} else if cmd.ByPeople() && cmd.Define == nil && time.Since(led) > leaderlessAfter {
			return p.leaderless(p.peers.identifyAll(ctx, alive(p.config.Discovery.Members())))
		}
		if err == nil || errors.Is(err, ErrCommand) || errors.Is(err, ErrConflict) || errors.Is(err, views.ErrNewer) {
			return err
		}
		if ended := p.sleep(ctx, pause); ended != nil {
			return errors.Join(ended, err, p.Problem())
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
}

func (p *proposer) proposeOnce(ctx context.Context, cmd views.Command, data []byte) error {
	leads := p.leaderID()
	switch {
	case leads == "":
		return errNoLeader
	case leads == p.storage.meta.Server && p.leaving.Load() && cmd.Remove != nil:
		// Handed over, but not noticed yet; or the lead came back.
		return errors.Join(errNoLeader, p.handOver(ctx))
	case leads == p.storage.meta.Server:
		return p.applyHere(cmd)
	}
	to, ok := p.addresses.to(leads)
	if !ok {
		return errNoLeader
	}
	return p.ask(ctx, leads, to, data)
}

// applyHere commits a command of another gateway, or of people, as the leader. What a removed
// gateway had among the raft servers is taken away before it learns of it: it closes then, and a
// voter that has closed still counts. So is what one had that people have taken out.
func (p *proposer) applyHere(cmd views.Command) error {
	var gone Member
	names := make(map[string]bool)
	view := p.View()
	switch {
	case cmd.Remove != nil:
		gone, _ = view.Member(cmd.Remove.Node)
	case cmd.Suspend != nil:
		for _, node := range cmd.Suspend.Nodes {
			m, _ := view.Member(node)
			l, _ := view.LostMember(node)
			names[cmp.Or(m.Name, l.Name)] = true
		}
	}
	if err := p.commit(cmd); err != nil {
		return err
	}
	if gone.Server != "" {
		err := p.takeOut(gone.Server, func(s leader.Server) bool { return s.ID == gone.Server && !s.Leader })
		if err != nil {
			p.config.Logger.Debug("left to the leader's loop", slog.String("server", gone.Server), slog.Any("error", err))
		}
	}
	if len(names) == 0 {
		return nil
	}
	// One that lives comes back by itself.
	return p.takeOut("", func(s leader.Server) bool {
		return names[nameOf(raft.ServerID(s.ID))] && s.Node == 0 && !s.Leader && !s.Alive
	})
}

// commit has a command agreed on, as the leader.
func (p *proposer) commit(cmd views.Command) error {
	data, err := views.Encode(cmd)
	if err != nil {
		return err
	}
	began := time.Now()
	future := p.raft.Apply(data, p.callTimeout())
	if err := p.committed(future); err != nil {
		return fmt.Errorf("membership: commit: %w", err)
	}
	p.config.Committed(time.Since(began))
	if err, failed := future.Response().(error); failed {
		return err
	}
	// The others learn with the next entry that this one is committed: without it
	// they would only after CommitTimeout.
	_ = p.raft.Barrier(p.callTimeout())
	return nil
}

// takeOut takes raft servers away, and first the votes of lost ones without which the others
// could not go on. Gossip is slow to notice a loss, so all are asked, but not the one that waits
// for an answer itself.
func (p *proposer) takeOut(waits string, gone func(leader.Server) bool) error {
	p.ops.Lock()
	defer p.ops.Unlock()
	peers := p.config.Discovery.Members()
	ids := p.peers.identifyAll(p.closing, slices.DeleteFunc(alive(peers), func(m serfring.Member) bool {
		return !slices.ContainsFunc(p.servers(), func(s raft.Server) bool { return nameOf(s.ID) == m.Name })
	}))
	for {
		servers := p.assess(peers)
		for i := range servers {
			s := &servers[i]
			s.Alive = s.Leader || s.ID == waits || ids[nameOf(raft.ServerID(s.ID))].Server == s.ID
		}
		i := slices.IndexFunc(servers, gone)
		if i < 0 {
			return nil
		}
		next := leader.TakeOut(servers, servers[i].ID)
		if next.Do == leader.Nothing {
			return fmt.Errorf("%w: without the vote of %s no majority is left", ErrCommand, nameOf(raft.ServerID(servers[i].ID)))
		}
		if err := p.change(next); err != nil {
			return err
		}
	}
}

// adminProofHeader carries the proof that who changes k, defines a pool or suspends a
// gateway has the admin token.
const adminProofHeader = "Kgate-Admin-Proof"

// adminProof proves to one leader that somebody with the admin token asks for a command. The
// leader may be a thief: it does not learn the token, and can use the proof nowhere else.
func adminProof(token, leads string, command []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = fmt.Fprintf(mac, "kgate command to %q: %s", leads, command) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// ask sends a command to the leader. It gives up when another one leads.
func (p *proposer) ask(ctx context.Context, leads string, to peercall.To, data []byte) error {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Addr+pathCommands, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("membership: ask %s: %w", to.Addr, err)
	}
	request.Header.Set("Content-Type", "application/json")
	if tokens := p.config.AdminTokens(); len(tokens) > 0 {
		request.Header.Set(adminProofHeader, adminProof(tokens[0], leads, data))
	}
	response, err := peercall.Do(p.peers.client, request, to.Name)
	p.addresses.tried(to, err)
	if err != nil {
		return fmt.Errorf("membership: ask %s: %w", to.Addr, err)
	}
	defer response.Body.Close()
	defer drop(response.Body)
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnprocessableEntity:
		var v verdict
		if err := json.NewDecoder(io.LimitReader(response.Body, views.MaxCommand)).Decode(&v); err != nil {
			return fmt.Errorf("membership: ask %s: %w", to.Addr, err)
		}
		return v.err()
	default:
		return fmt.Errorf("%w: %s answered with status %d", raft.ErrNotLeader, to.Addr, response.StatusCode)
	}
}

// handOver passes the lead on, if this gateway has it, to one that is alive;
// if that one has no vote yet, it gets one.
func (p *proposer) handOver(ctx context.Context) error {
	for p.leads() {
		err := p.handOverOnce(ctx)
		if err == nil {
			return nil
		}
		if ended := p.sleep(ctx, soon); ended != nil {
			return errors.Join(ended, err)
		}
	}
	return nil
}

func (p *proposer) handOverOnce(ctx context.Context) error {
	p.ops.Lock()
	defer p.ops.Unlock()
	peers := p.config.Discovery.Members()
	successor := p.nextLeader(peers)
	if successor.ID == "" {
		return fmt.Errorf("%w: nobody alive to hand over to", errNoLeader)
	}
	if successor.Suffrage != raft.Voter {
		if !p.peers.caughtUp(peers, successor.ID) {
			return fmt.Errorf("%w: %s has not caught up", errNoLeader, successor.ID)
		}
		if err := p.change(leader.Step{Do: leader.Promote, Server: string(successor.ID)}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.raft.LeadershipTransferToServer(successor.ID, successor.Address).Error(); err != nil {
		return fmt.Errorf("membership: hand over to %s: %w", successor.ID, err)
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
func (p *proposer) change(s leader.Step) error {
	id := raft.ServerID(s.Server)
	var future raft.IndexFuture
	switch s.Do {
	case leader.Promote:
		var addr raft.ServerAddress
		for _, have := range p.servers() {
			if have.ID == id {
				addr = have.Address
			}
		}
		if addr == "" {
			return fmt.Errorf("membership: %s is no raft server", id)
		}
		future = p.raft.AddVoter(id, addr, 0, p.callTimeout())
	case leader.Demote:
		future = p.raft.DemoteVoter(id, 0, p.callTimeout())
	case leader.Remove:
		future = p.raft.RemoveServer(id, 0, p.callTimeout())
	case leader.Nothing:
		return nil
	default:
		return fmt.Errorf("membership: unknown step %q", s.Do)
	}
	if err := future.Error(); err != nil {
		return fmt.Errorf("membership: %s raft server %s: %w", s.Do, id, err)
	}
	server := slog.String("server", s.Server)
	switch name := slog.String("name", nameOf(id)); s.Do {
	case leader.Promote:
		p.config.Logger.Info("gateway votes from now on", name, server)
	case leader.Demote:
		p.config.Logger.Info("gateway no longer votes", name, server)
	default:
		p.config.Logger.Debug("raft server removed", name, server)
	}
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
func drop(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, views.MaxCommand)) }
