package membership

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/peercert"
)

func (c *Cluster) newControl() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathIdentity, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, c.peers.identity())
	})
	mux.HandleFunc("GET "+pathReach, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusOK, reach{Unreached: c.peers.unreached(r.Context(), r.URL.Query()["of"]...)})
	})
	mux.HandleFunc("GET "+pathTerm, c.serveTerm)
	mux.HandleFunc("POST "+pathLease, c.serveLease)
	mux.HandleFunc("POST "+pathCommands, c.serveCommand)
	mux.HandleFunc("POST "+pathEcho, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, echoSize)) // one that is cut short gets what there is
		_, _ = w.Write(data)
	})
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
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, views.MaxCommand))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !c.leads() { // a proof was made for another gateway, or for a former process
		http.Error(w, "not the leader", http.StatusMisdirectedRequest)
		return
	}
	cmd, err := views.DecodeCommand(data)
	if err == nil {
		err = c.allowed(r, cmd, data)
	}
	if err != nil {
		c.config.Logger.Warn("change refused to another gateway",
			slog.String("remote", r.RemoteAddr), slog.Any("certificate", callerNames(r)), slog.Any("error", err))
		writeJSON(w, http.StatusUnprocessableEntity, verdict{Refused: err.Error()})
		return
	}
	err = c.proposer.applyHere(cmd)
	if err == nil {
		level := slog.LevelDebug // what gateways do by themselves shows in what follows
		if cmd.ByPeople() {
			level = slog.LevelInfo
		}
		c.config.Logger.Log(r.Context(), level, "change made for another gateway",
			slog.String("change", cmd.String()), slog.String("remote", r.RemoteAddr), slog.Any("certificate", callerNames(r)))
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

// Over TLS a gateway speaks under the name in its certificate. What it may ask of
// others follows from that: to go itself, to renew its own lease, and as a member
// what any gateway may; a change that people make needs proof of their token as well.

// callerNames returns the names in the caller's certificate; nil without TLS.
func callerNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return peercert.Names(r.TLS.PeerCertificates[0])
}

// allowed returns an error if a command may not be asked for in this way; data is what it was
// decoded from.
func (c *Cluster) allowed(r *http.Request, cmd views.Command, data []byte) error {
	v := c.View()
	switch {
	case cmd.Leaders():
		return fmt.Errorf("%w: only the leader judges other gateways", ErrCommand)
	case cmd.Remove != nil:
		m, in := v.Member(cmd.Remove.Node)
		if err := peercert.OfState(r.TLS, m.Name); in && err != nil {
			return fmt.Errorf("%w: a gateway can take out itself only: %w", ErrCommand, err)
		}
	case cmd.ByPeople() && !c.proven(r.Header.Get(adminProofHeader), data):
		return fmt.Errorf("%w: the leader asks for proof of the admin token: give every gateway the same node.admin_token_file and version of kgate", ErrCommand)
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

// proven reports whether a proof is made with one of our tokens for this command to this
// gateway, or none is needed.
func (c *Cluster) proven(proof string, data []byte) bool {
	tokens := c.config.AdminTokens()
	return len(tokens) == 0 || slices.ContainsFunc(tokens, func(own string) bool {
		return hmac.Equal([]byte(adminProof(own, c.storage.meta.Server, data)), []byte(proof))
	})
}

// serveTerm answers a leader that wants to know whether it still is one, and voters
// that have none. Only the server that was meant may answer: another incarnation has
// other votes.
func (c *Cluster) serveTerm(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("server") != c.storage.meta.Server {
		http.Error(w, "another server is here", http.StatusMisdirectedRequest)
		return
	}
	if !c.roll.called() || c.roll.behind() != nil {
		http.Error(w, "this gateway may have lost what it has voted for", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, c.leaders.term())
}

func (c *Cluster) serveLease(w http.ResponseWriter, r *http.Request) {
	var p renewalRequest
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, views.MaxCommand))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err == nil && max(len(p.Down), len(p.Missing)) > maxComplaints {
		err = fmt.Errorf("%w: %d links are down, %d reports are missing", ErrCommand, len(p.Down), len(p.Missing))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m, in := c.View().Member(p.Node); in && peercert.OfState(r.TLS, m.Name) != nil {
		http.Error(w, "a gateway renews its own lease only", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.callTimeout())
	defer cancel()
	switch err := c.leases.ask(ctx, p); {
	case err == nil:
		writeJSON(w, http.StatusOK, renewalAnswer{Granted: true, Applied: c.machine.newestCheckpoint()})
	case errors.Is(err, errNotMember):
		writeJSON(w, http.StatusOK, renewalAnswer{Lost: true})
	default:
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	}
}
