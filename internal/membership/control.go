package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/internal/peercert"
	"github.com/kgate/kgate/kmutex"
)

// What gateways ask each other over the control stream.
const (
	pathIdentity = "/v1/identity"
	pathCommands = "/v1/commands"
	pathLease    = "/v1/lease"
	pathTerm     = "/v1/term"
	pathReach    = "/v1/reach"
	pathState    = "/v1/state"
)

// identity is what a gateway says about itself. Fields may be added.
type identity struct {
	Name    string `json:"name"`
	Boot    string `json:"boot"`
	Server  string `json:"server"`
	Cluster string `json:"cluster"`
	// Voided is the incarnation before, if it was in the same process.
	Voided kmutex.Node `json:"voided,omitempty"`
	// Witness: it wants to vote and to serve nothing.
	Witness bool `json:"witness,omitempty"`
	// Leaving gateways do not want to be let in again.
	Leaving bool `json:"leaving"`
	// Bootstrapping gateways are about to start a cluster alone.
	Bootstrapping bool `json:"founding"`
	// Last is the index of the newest entry of its log.
	Last uint64 `json:"last"`
	// Agreed is how far it knows the log to be agreed on.
	Agreed raftfile.Position `json:"agreed"`
	// Sees names the gateways that it would start a cluster with.
	Sees []string `json:"sees"`
	// Servers is the configuration with which it bootstrapped the cluster.
	Servers []bootstrapServer `json:"servers"`
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

func (c *Cluster) identity() identity {
	first, err := c.bootstrapPeers(c.config.Discovery.Members())
	if err != nil {
		first = nil
	}
	boot, voided := c.incarnation.current()
	id := identity{
		Name:    c.config.Name,
		Boot:    boot,
		Voided:  voided,
		Server:  c.storage.meta.Server,
		Witness: c.config.Witness,
		Leaving: c.leaving.Load(),
		Last:    c.raft.LastIndex(),
		Agreed:  c.agreed(),
		Sees:    seenBy(first),
	}
	id.Bootstrapping = id.Last == 0 && c.config.BootstrapExpect == 1 && !c.config.Joining
	if id.Last > 0 {
		id.Cluster = c.clusterID()
		c.idMu.Lock()
		id.Servers = c.bootstrapped
		c.idMu.Unlock()
	}
	return id
}

func (c *Cluster) newControl() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathIdentity, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, c.identity())
	})
	mux.HandleFunc("GET "+pathReach, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, reach{Unreached: c.unreached(r.Context(), r.URL.Query()["of"]...)})
	})
	mux.HandleFunc("GET "+pathTerm, c.serveTerm)
	mux.HandleFunc("GET "+pathState, c.serveState)
	mux.HandleFunc("POST "+pathLease, c.serveLease)
	mux.HandleFunc("POST "+pathCommands, c.serveCommand)
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(c.config.Logger.Handler(), slog.LevelDebug),
	}
}

// serveCommand applies a command as the leader. Only those that a gateway may
// ask for are taken: letting in is the leader's own business.
func (c *Cluster) serveCommand(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd, err := decodeCommand(data)
	if err == nil {
		err = c.allowed(r, cmd)
	}
	if err != nil {
		c.config.Logger.Warn("change refused to another gateway",
			slog.String("remote", r.RemoteAddr), slog.Any("certificate", callerNames(r)), slog.Any("error", err))
		writeJSON(w, http.StatusUnprocessableEntity, verdict{Refused: err.Error()})
		return
	}
	err = c.applyHere(cmd)
	if err == nil {
		c.config.Logger.Info("change made for another gateway",
			slog.String("change", string(data)), slog.String("remote", r.RemoteAddr), slog.Any("certificate", callerNames(r)))
	}
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, verdict{})
	case errors.Is(err, ErrCommand), errors.Is(err, ErrConflict):
		writeJSON(w, http.StatusUnprocessableEntity, verdict{Refused: err.Error(), Conflict: errors.Is(err, ErrConflict)})
	default: // not the leader, or not any more
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the asking side sees a cut answer
}

// dialControl connects to a gateway. Over TLS it has to be one that is known
// there.
func (c *Cluster) dialControl(ctx context.Context, _, addr string) (net.Conn, error) {
	conn, err := c.config.Control.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range c.View().Members {
		if m.PeerAddr == addr {
			names = append(names, m.Name)
		}
	}
	for _, p := range c.config.Discovery.Members() {
		if p.PeerAddr == addr {
			names = append(names, p.Name)
		}
	}
	if err := peercert.OfConn(conn, names...); len(names) > 0 && err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("membership: %s: %w", addr, err)
	}
	return conn, nil
}

// identify asks the gateway at an address who it is.
func (c *Cluster) identify(ctx context.Context, addr string) (identity, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.CallTimeout)
	defer cancel()
	var id identity
	err := c.call(ctx, http.MethodGet, addr, pathIdentity, nil, &id)
	return id, err
}

// call asks the gateway at an address something, and reads its answer if it is
// a good one.
func (c *Cluster) call(ctx context.Context, method, addr, path string, question, answer any) error {
	const limit = 4 << 20
	if err := peercall.JSON(ctx, c.client, method, addr, path, question, answer, limit); err != nil {
		return fmt.Errorf("membership: ask %s: %w", addr, err)
	}
	return nil
}

// asksAtOnce bounds the calls that are open at a time.
const asksAtOnce = 16

// identifyAll asks all peers at once; those that do not answer are missing
// from what it returns. This gateway answers for itself.
func (c *Cluster) identifyAll(ctx context.Context, peers []serfring.Member) map[string]identity {
	var mu sync.Mutex
	ids := make(map[string]identity, len(peers))
	peercall.Each(peers, asksAtOnce, func(_ int, p serfring.Member) {
		id, ok := c.identity(), true
		if p.Name != c.config.Name {
			id, ok = c.identifyPeer(ctx, p)
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
func (c *Cluster) identifyPeer(ctx context.Context, p serfring.Member) (id identity, ok bool) {
	id, err := c.identify(ctx, p.PeerAddr)
	if err == nil && id.Name != p.Name {
		err = fmt.Errorf("membership: at %s is %q, not %q", p.PeerAddr, id.Name, p.Name)
	}
	if err == nil {
		c.silent.over(p.Name)
		return id, true
	}
	// One that is just leaving does not answer either, for a moment.
	lasting := c.silent.lasts(p.Name)
	if ctx.Err() == nil && lasting && c.once.First("identify "+p.Name) {
		c.config.Logger.Warn("a gateway that gossip sees does not answer on its peer port",
			slog.String("name", p.Name), slog.String("peer_address", p.PeerAddr), slog.Any("error", err),
			slog.String("hint", "check its advertised address, the firewall and the TLS certificates"))
	}
	return identity{}, false
}

// ask sends a command to the leader at an address. It gives up when another one leads.
func (c *Cluster) ask(ctx context.Context, leads, addr string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*c.config.CallTimeout)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.whileLed(ctx, leads, cancel)
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
	if tokens := c.adminTokens(); len(tokens) > 0 {
		request.Header.Set(adminTokenHeader, tokens[0])
	}
	response, err := c.client.Do(request)
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
