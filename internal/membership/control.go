package membership

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/membership/raftfile"
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

func (c *Cluster) newControl() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathIdentity, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, c.peers.identity())
	})
	mux.HandleFunc("GET "+pathReach, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, reach{Unreached: c.peers.unreached(r.Context(), r.URL.Query()["of"]...)})
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
	err = c.proposer.applyHere(cmd)
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

// asksAtOnce bounds the calls that are open at a time.
const asksAtOnce = 16

// Over TLS a gateway speaks under the name in its certificate. What it may ask of
// others follows from that: to go itself, to renew its own lease, and as a member
// what any gateway may; a change that people make needs their token as well.

// adminTokenHeader carries the token of who changes k, defines a pool or suspends a
// gateway.
const adminTokenHeader = "Kgate-Admin-Token"

// callerNames returns the names in the caller's certificate; nil without TLS.
func callerNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return peercert.Names(r.TLS.PeerCertificates[0])
}

// allowed returns an error if a command may not be asked for in this way.
func (c *Cluster) allowed(r *http.Request, cmd command) error {
	v := c.View()
	switch {
	case cmd.leaders():
		return fmt.Errorf("%w: only the leader judges other gateways", ErrCommand)
	case cmd.Remove != nil:
		m, in := v.Member(cmd.Remove.Node)
		if err := peercert.OfState(r.TLS, m.Name); in && err != nil {
			return fmt.Errorf("%w: a gateway can take out itself only: %w", ErrCommand, err)
		}
	case (cmd.SetK != nil || cmd.Suspend != nil || cmd.Define != nil) && !c.tokenFits(r.Header.Get(adminTokenHeader)):
		return fmt.Errorf("%w: the leader asks for the admin token: give every gateway the same node.admin_token_file", ErrCommand)
	default:
		var names []string
		for _, m := range v.Members {
			names = append(names, m.Name)
		}
		if err := peercert.OfState(r.TLS, names...); err != nil {
			return fmt.Errorf("%w: not from a member: %w", ErrCommand, err)
		}
	}
	return nil
}

// tokenFits reports whether the token is one of ours, or none is needed.
func (c *Cluster) tokenFits(token string) bool {
	tokens := c.proposer.adminTokens()
	return len(tokens) == 0 || slices.ContainsFunc(tokens, func(own string) bool {
		return subtle.ConstantTimeCompare([]byte(own), []byte(token)) == 1
	})
}
