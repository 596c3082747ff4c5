package membership

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/kmutex"
)

// What gateways ask each other over the control stream.
const (
	pathIdentity = "/v1/identity"
	pathCommands = "/v1/commands"
	pathLease    = "/v1/lease"
	pathTerm     = "/v1/term"
	pathReach    = "/v1/reach"
	pathEcho     = "/v1/echo"
)

// asksAtOnce bounds the calls that are open at a time.
const asksAtOnce = 16

// identity is what a gateway says about itself. Fields may be added.
type identity struct {
	Name    string `json:"name"`
	Boot    string `json:"boot"`
	Server  string `json:"server"`
	Cluster string `json:"cluster"`
	// Voided is the incarnation before, if it was in the same process.
	Voided kmutex.Node `json:"voided,omitempty"`
	// Leaving gateways do not want to be let in again.
	Leaving bool `json:"leaving"`
	// Bootstrapping gateways are about to start a cluster alone.
	Bootstrapping bool `json:"founding"`
	// Witness: it wants to vote and to serve nothing.
	Witness bool `json:"witness,omitempty"`
	// Last is the index of the newest entry of its log.
	Last uint64 `json:"last"`
	// Agreed is how far it knows the log to be agreed on.
	Agreed raftfile.Position `json:"agreed"`
	// Sees names the gateways that it would start a cluster with.
	Sees []string `json:"sees"`
	// Servers is the configuration with which it bootstrapped the cluster.
	Servers []bootstrapServer `json:"servers"`
}

// reach is the answer to the question whom a gateway reaches.
type reach struct {
	// Unreached names those that gossip sees alive and that cannot be dialed.
	Unreached []string `json:"unreached"`
}

// peerClient asks other gateways, and answers for this one when somebody asks all.
type peerClient struct {
	*raftNode
	incarnation *incarnation
	client      *http.Client
	silent      silences
}

func newPeerClient(n *raftNode, i *incarnation) *peerClient {
	pc := &peerClient{raftNode: n, incarnation: i}
	pc.client = &http.Client{Transport: &http.Transport{
		DialContext:         pc.dialControl,
		MaxIdleConnsPerHost: 2 * asksPerVoter,
		IdleConnTimeout:     30 * time.Second,
	}}
	return pc
}

func (pc *peerClient) identity() identity {
	first, err := pc.bootstrapPeers(pc.config.Discovery.Members())
	if err != nil {
		first = nil
	}
	boot, voided := pc.incarnation.current()
	id := identity{
		Name:    pc.config.Name,
		Boot:    boot,
		Voided:  voided,
		Server:  pc.storage.meta.Server,
		Leaving: pc.leaving.Load(),
		Witness: pc.config.Witness,
		Last:    pc.raft.LastIndex(),
		Agreed:  pc.roll.agreed(),
		Sees:    seenBy(first),
	}
	id.Bootstrapping = id.Last == 0 && pc.config.BootstrapExpect == 1 && !pc.config.Joining
	if id.Last > 0 {
		id.Cluster = pc.storage.clusterID()
		pc.storage.mu.Lock()
		id.Servers = pc.storage.bootstrapped
		pc.storage.mu.Unlock()
	}
	return id
}

// dialControl connects to a gateway; peercall checks which.
func (pc *peerClient) dialControl(ctx context.Context, _, addr string) (net.Conn, error) {
	// The call that wants the connection may be gone meanwhile; net/http dials on.
	ctx, cancel := context.WithTimeout(ctx, pc.callTimeout())
	defer cancel()
	defer context.AfterFunc(pc.closing, cancel)()
	return pc.config.Control.Dial(ctx, addr)
}

// identify asks a gateway who it is.
func (pc *peerClient) identify(ctx context.Context, to peercall.To) (identity, error) {
	ctx, cancel := context.WithTimeout(ctx, pc.callTimeout())
	defer cancel()
	var id identity
	err := pc.call(ctx, http.MethodGet, to, pathIdentity, nil, &id)
	if err == nil && id.Name != to.Name {
		err = fmt.Errorf("membership: at %s is %q, not %q", to.Addr, id.Name, to.Name)
		pc.addresses.tried(to, err)
	}
	return id, err
}

// call asks a gateway something, and reads its answer if it is a good one.
func (pc *peerClient) call(ctx context.Context, method string, to peercall.To, path string, question, answer any) error {
	const limit = 4 << 20
	err := peercall.JSON(ctx, pc.client, method, to, path, question, answer, limit)
	pc.addresses.tried(to, err)
	if err != nil {
		return fmt.Errorf("membership: ask %s: %w", to.Addr, err)
	}
	return nil
}

// toPeer is a gateway where gossip sees it.
func toPeer(p serfring.Member) peercall.To { return peercall.To{Name: p.Name, Addr: p.PeerAddr} }

// identifyAll asks all peers at once; those that do not answer are missing
// from what it returns. This gateway answers for itself.
func (pc *peerClient) identifyAll(ctx context.Context, peers []serfring.Member) map[string]identity {
	var mu sync.Mutex
	ids := make(map[string]identity, len(peers))
	peercall.Each(peers, asksAtOnce, func(_ int, p serfring.Member) {
		id, ok := pc.identity(), true
		if p.Name != pc.config.Name {
			id, ok = pc.identifyPeer(ctx, p)
		}
		if ok {
			mu.Lock()
			defer mu.Unlock()
			ids[p.Name] = id
		}
	})
	return ids
}

// identifyPeer asks a peer, and logs that it does not answer once that has lasted.
func (pc *peerClient) identifyPeer(ctx context.Context, p serfring.Member) (id identity, ok bool) {
	id, err := pc.identify(ctx, toPeer(p))
	if err == nil {
		pc.silent.over(p.Name)
		return id, true
	}
	// One that is just leaving does not answer either, for a moment.
	lasting := pc.silent.lasts(p.Name)
	if ctx.Err() == nil && lasting && pc.once.First("identify "+p.Name) {
		pc.config.Logger.Warn("a gateway that gossip sees does not answer on its peer port",
			slog.String("name", p.Name), slog.String("peer_address", p.PeerAddr), slog.Any("error", err),
			slog.String("hint", "if the error does not say why, check its advertised address, the firewall and the cluster key"))
	}
	return identity{}, false
}

// reaches dials a peer port. Only a dial that was refused, not answered or had
// no way failed: any other answer comes from somebody who lives. How long TCP's handshake takes
// tells how far away that is: the trace sees it.
func (pc *peerClient) reaches(ctx context.Context, addr string) bool {
	began, lease := time.Now(), pc.lease()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(probeTimeout(lease, 0), func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	connected := func(_, _ string, err error) {
		if trip := time.Since(began); err == nil && timer.Stop() {
			timer.Reset(probeTimeout(lease, trip) - trip)
		}
	}
	conn, err := pc.probe(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectDone: connected}), addr, reachTimeout(lease))
	if err == nil {
		_ = conn.Close()
		return true
	}
	return !silent(err) && !silent(context.Cause(ctx))
}

// passes dials a peer port and has it send back what fills packets as long as they get. A
// network that loses long packets lets dials through, and no link: see package transport.
func (pc *peerClient) passes(ctx context.Context, addr string) bool {
	conn, err := pc.probe(ctx, addr, reachTimeout(pc.lease()))
	if err != nil {
		return !silent(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, echoTimeout(pc.lease()))
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+pathEcho, bytes.NewReader(make([]byte, echoSize)))
	if err == nil {
		err = exchange(conn, ask)
	}
	return !silent(err)
}

// exchange sends a request, and reads the answer to its end.
func exchange(conn net.Conn, ask *http.Request) error {
	if err := ask.Write(conn); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// echoSize is longer than what any usual network carries in one packet.
const echoSize = 9 << 10

// probe connects to the control stream at a peer port, to see whether that works.
func (pc *peerClient) probe(ctx context.Context, addr string, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return pc.config.Control.Dial(ctx, addr)
}

// silent tells the errors of a probe with which nobody has answered.
func silent(err error) bool {
	for _, dead := range []error{
		syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		os.ErrDeadlineExceeded, context.DeadlineExceeded,
	} {
		if errors.Is(err, dead) {
			return true
		}
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// unreached tries everybody whom gossip sees alive, or only those named, and returns
// those to which or from which long packets do not pass. One who asks to be let in must reach all members.
func (pc *peerClient) unreached(ctx context.Context, of ...string) []string {
	peers := alive(pc.config.Discovery.Members())
	var mu sync.Mutex
	names := []string{}
	peercall.Each(peers, asksAtOnce, func(_ int, p serfring.Member) {
		if p.Name == pc.config.Name || len(of) > 0 && !slices.Contains(of, p.Name) || pc.passes(ctx, p.PeerAddr) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		names = append(names, p.Name)
	})
	return names
}

// unreachedFrom asks a gateway that wants to come in whom it does not reach.
func (pc *peerClient) unreachedFrom(p serfring.Member) (names []string, ok bool) {
	if p.Name == pc.config.Name {
		return pc.unreached(pc.closing), true
	}
	ctx, cancel := context.WithTimeout(pc.closing, 4*pc.callTimeout())
	defer cancel()
	var r reach
	err := pc.call(ctx, http.MethodGet, toPeer(p), pathReach, nil, &r)
	return r.Unreached, err == nil
}

// reachedFrom asks a member whether it reaches a gateway.
func (pc *peerClient) reachedFrom(m Member, name string) bool {
	ctx, cancel := context.WithTimeout(pc.closing, 4*pc.callTimeout())
	defer cancel()
	var r reach
	err := pc.call(ctx, http.MethodGet, peercall.To{Name: m.Name, Addr: m.PeerAddr}, pathReach+"?of="+url.QueryEscape(name), nil, &r)
	return err == nil && !slices.Contains(r.Unreached, name)
}

// caughtUp asks a server whether it has the log, so that a vote is not given
// to one whose silence would stop the cluster.
func (pc *peerClient) caughtUp(peers []serfring.Member, id raft.ServerID) bool {
	p, ok := find(peers, nameOf(id))
	if !ok {
		return false
	}
	committed := pc.raft.CommitIndex()
	said, err := pc.identify(pc.closing, toPeer(p))
	return err == nil && said.Server == string(id) && said.Last >= committed && !said.Leaving
}

// seenBy names the gateways with their boots.
func seenBy(first []serfring.Member) []string {
	seen := make([]string, len(first))
	for i, p := range first {
		seen[i] = p.Name + "/" + p.Boot
	}
	return seen
}

// bootstrapPeers returns the gateways that would start a cluster now, in order of
// name.
func (pc *peerClient) bootstrapPeers(peers []serfring.Member) ([]serfring.Member, error) {
	if pc.config.BootstrapExpect == 1 {
		return nil, nil // it starts one alone, or never
	}
	var first []serfring.Member
	for _, p := range peers {
		if p.Status != serfring.StatusAlive {
			continue
		}
		if p.Expect == pc.config.BootstrapExpect {
			first = append(first, p)
			continue
		}
		if p.Expect > 1 && pc.once.First("expect "+p.Name) {
			pc.config.Logger.Warn("another gateway expects another number of gateways",
				slog.String("name", p.Name), slog.Int("theirs", p.Expect), slog.Int("ours", pc.config.BootstrapExpect),
				slog.String("hint", "give every gateway that starts the cluster the same bootstrap_expect"))
		}
	}
	slices.SortFunc(first, func(a, b serfring.Member) int { return strings.Compare(a.Name, b.Name) })
	if there := len(first); there < pc.config.BootstrapExpect {
		return nil, fmt.Errorf("membership: waiting for %d gateways to start a cluster, %d are there", pc.config.BootstrapExpect, there)
	}
	return first, nil
}
