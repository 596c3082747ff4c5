package admin

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
)

// NewPeerHandler returns the handler that answers the [Peers] of other gateways, on the peer port. It
// uses the Source, Lines, Tokens and Log of cfg.
func NewPeerHandler(cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	source, lines := cfg.Source, cfg.Lines
	r := chi.NewRouter()
	r.Get("/report", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		entries, _ := strconv.Atoi(q.Get("entries")) // 0: none
		writeJSON(w, http.StatusOK, source.Report(q.Get("pool"), max(0, min(entries, entriesShown))))
	})
	r.Get("/trace", func(w http.ResponseWriter, r *http.Request) {
		var answer traceAnswer
		answer.Pool, answer.Found = lines.Find(r.URL.Query().Get("id"))
		writeJSON(w, http.StatusOK, answer)
	})
	r.Post("/cancel", func(w http.ResponseWriter, r *http.Request) {
		var call cancelCall
		r.Header.Set("Content-Type", "application/json") // peers send nothing else
		if err := readJSON(w, r, &call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var answer cancelAnswer
		entry, remote := slog.String("id", call.ID), slog.String("remote", r.RemoteAddr)
		if !call.proves(cfg.Tokens()) {
			answer.Refused = "it asks for the admin token: give every gateway the same node.admin_token_file"
			cfg.Log.Warn("change refused to another gateway: it has not shown the admin token", entry, remote)
		} else if answer.Done = lines.Cancel(call.ID) == nil; answer.Done {
			cfg.Log.Info("taken out of the line for another gateway", entry, remote)
		}
		writeJSON(w, http.StatusOK, answer)
	})
	return r
}
