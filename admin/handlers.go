package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// handler answers from a Source.
type handler struct {
	source Source
	log    *slog.Logger
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok")
}

func (h *handler) readyz(w http.ResponseWriter, _ *http.Request) {
	ready, reason := h.source.Ready()
	switch {
	case ready:
		plain(w, http.StatusOK, "ready")
	case reason == "":
		plain(w, http.StatusServiceUnavailable, "not ready")
	default:
		plain(w, http.StatusServiceUnavailable, reason)
	}
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(h.source.Status().withLists()); err != nil {
		// NaN in a number: a defect of the source, not the client's fault.
		h.log.Error("status cannot be encoded", slog.Any("error", err))
		problem(w, r, http.StatusInternalServerError, "the status cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes())
}

func notFound(w http.ResponseWriter, r *http.Request) {
	problem(w, r, http.StatusNotFound, "there is nothing at this path; see /, /api/v1/status, /metrics, /healthz, /readyz")
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	problem(w, r, http.StatusMethodNotAllowed, "only GET and HEAD are allowed here")
}

// methods serves one path.
type methods map[string]http.HandlerFunc

// ServeHTTP implements http.Handler.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := m[method]; h != nil {
		h(w, r)
		return
	}
	allow := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	w.Header().Set("Allow", allow)
	problem(w, r, http.StatusMethodNotAllowed, "only "+allow+" are allowed here")
}

// plain answers with one line.
func plain(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(strings.Join(strings.Fields(line), " ") + "\n"))
}
