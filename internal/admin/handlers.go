package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/kgate/kgate/internal/problems"
)

// handler answers on the admin address.
type handler struct {
	Config
	fleet *fleet
	live  live
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	problems.WriteLine(w, http.StatusOK, "ok")
}

func (h *handler) readyz(w http.ResponseWriter, _ *http.Request) {
	if ready, reason := h.Source.Ready(); !ready {
		problems.WriteLine(w, http.StatusServiceUnavailable, reason)
		return
	}
	problems.WriteLine(w, http.StatusOK, "ready")
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	s, err := h.fleet.status(r.Context())
	if err != nil {
		failed(w, r, err, h.Log)
		return
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		// NaN in a number: a defect of the source, not the client's fault.
		h.Log.Error("status cannot be encoded", slog.Any("error", err))
		problem(w, r, http.StatusInternalServerError, "the status cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes())
}

// line shows the requests and tickets of a pool.
func (h *handler) line(w http.ResponseWriter, r *http.Request) {
	pool := r.URL.Query().Get("pool")
	if pool == "" {
		failed(w, r, fmt.Errorf("%w: name the pool, with pool=NAME", ErrInvalid), h.Log)
		return
	}
	l, _, err := h.fleet.line(r.Context(), pool)
	respond(w, r, l, err, h.Log)
}

// cancel takes a request or ticket out of the line.
func (h *handler) cancel(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if err := h.fleet.cancel(r.Context(), id); err != nil {
		failed(w, r, err, h.Log)
		return
	}
	h.Log.Info("taken out of the line", slog.String("id", id), slog.String("client", r.RemoteAddr))
	w.WriteHeader(http.StatusNoContent)
}
