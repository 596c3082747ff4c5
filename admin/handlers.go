package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
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

// plain answers with one line.
func plain(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(strings.Join(strings.Fields(line), " ") + "\n"))
}

// problem answers with an error: RFC 9457 to a client of the API or one that
// asks for it, else one line.
func problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	accept := r.Header.Get("Accept")
	if !strings.HasPrefix(r.URL.Path, "/api/") && !strings.Contains(accept, "json") {
		plain(w, status, detail)
		return
	}
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	if err != nil {
		plain(w, status, detail)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
