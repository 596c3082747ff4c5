package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/membership/raftfile"
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
