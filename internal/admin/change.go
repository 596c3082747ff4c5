package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"
)

// Control changes the cluster. The gateway's process implements it.
type Control interface {
	// SetK changes the k of a pool in the whole cluster, or the k of one of its upstreams if
	// upstream is not empty. If was is not 0 and differs from the present k, it fails with
	// ErrConflict. It fails with ErrUnknown for an unknown pool, with ErrInvalid for an
	// impossible k, and with ErrUnavailable without a majority.
	SetK(ctx context.Context, pool, upstream string, k, was int) error
	// SetRate changes the rate of a pool in the whole cluster, and returns when it holds
	// everywhere. It fails as SetK does.
	SetRate(ctx context.Context, pool string, change RateChange) error
	// Drain begins to take this gateway out of service: it refuses new requests,
	// finishes those in flight, and stays in the cluster.
	Drain()
	// Leave begins to end this gateway as SIGTERM does.
	Leave()
	// Reload has this gateway read its configuration file again, as SIGHUP does, and returns the
	// changes, each in a line. It fails with ErrInvalid if the file has errors, and with
	// ErrUnavailable if there is no file; then nothing has changed.
	Reload(ctx context.Context) (changes []string, err error)
	// Suspend takes out by force another gateway that is lost for good or must not go on. It
	// fails with ErrUnknown for an unknown name.
	Suspend(ctx context.Context, member string) error
}

// RateChange is a new rate of a pool, in bytes per second; 0: no bound, nil: no change.
type RateChange struct {
	Down *int64 `json:"down,omitempty"`
	Up   *int64 `json:"up,omitempty"`
}

// Reloaded lists the changes of a reload, each a line such as "log.level: info -> debug (reload)":
// key, old value, new value, and when it takes effect.
type Reloaded struct {
	Changes []string `json:"changes"`
}

// setPool changes k, or the rate, and answers when the change holds.
func (h *handler) setPool(w http.ResponseWriter, r *http.Request) {
	var q struct {
		K        int         `json:"k"`
		Was      int         `json:"was"`
		Upstream string      `json:"upstream"`
		Rate     *RateChange `json:"rate"`
	}
	name, err := pathName(r)
	if err == nil {
		err = readJSON(w, r, &q)
	}
	switch {
	case err != nil:
	case q.Rate != nil && (q.K != 0 || q.Was != 0 || q.Upstream != ""):
		err = fmt.Errorf("%w: change k or rate, not both at once", ErrInvalid)
	case q.Rate != nil:
		h.setRate(w, r, name, *q.Rate)
		return
	case q.K < 1 && q.Upstream == "":
		err = fmt.Errorf("%w: k must be at least 1, not %d", ErrInvalid, q.K)
	case q.Was < 0:
		err = fmt.Errorf("%w: was is the k that you take for granted, or absent; not %d", ErrInvalid, q.Was)
	default:
		err = h.Control.SetK(r.Context(), name, q.Upstream, q.K, q.Was)
	}
	if err != nil {
		failed(w, r, err, h.Log)
		return
	}
	answer, attrs := map[string]any{"name": name, "k": q.K}, []any{slog.String("pool", name), slog.Int("k", q.K), slog.String("client", r.RemoteAddr)}
	if q.Upstream != "" {
		answer["upstream"], attrs = q.Upstream, append(attrs, slog.String("upstream", q.Upstream))
	}
	h.Log.Info("k set", attrs...)
	writeJSON(w, http.StatusOK, answer)
}

func (h *handler) setRate(w http.ResponseWriter, r *http.Request, pool string, change RateChange) {
	var err error
	for _, rate := range []*int64{change.Down, change.Up} {
		if rate != nil && *rate < 0 {
			err = fmt.Errorf("%w: a rate is in bytes per second, or 0 for no bound; not %d", ErrInvalid, *rate)
		}
	}
	if change.Down == nil && change.Up == nil {
		err = fmt.Errorf("%w: rate needs down or up, in bytes per second", ErrInvalid)
	}
	if err == nil {
		err = h.Control.SetRate(r.Context(), pool, change)
	}
	if err != nil {
		failed(w, r, err, h.Log)
		return
	}
	attrs := []any{slog.String("pool", pool), slog.String("client", r.RemoteAddr)}
	for name, rate := range map[string]*int64{"down": change.Down, "up": change.Up} {
		if rate != nil {
			attrs = append(attrs, slog.Int64(name, *rate))
		}
	}
	h.Log.Info("rate set", attrs...)
	writeJSON(w, http.StatusOK, map[string]any{"name": pool, "rate": change})
}

func (h *handler) drain(w http.ResponseWriter, r *http.Request) {
	h.Control.Drain()
	h.accept(w, r, "draining")
}

func (h *handler) leave(w http.ResponseWriter, r *http.Request) {
	h.Control.Leave()
	h.accept(w, r, "leaving")
}

func (h *handler) reload(w http.ResponseWriter, r *http.Request) {
	changes, err := h.Control.Reload(r.Context())
	if err != nil {
		failed(w, r, err, h.Log)
		return
	}
	h.Log.Info("configuration read again", slog.Int("changes", len(changes)), slog.String("client", r.RemoteAddr))
	writeJSON(w, http.StatusOK, Reloaded{Changes: list(changes)})
}

func (h *handler) suspend(w http.ResponseWriter, r *http.Request) {
	name, err := pathName(r)
	if err == nil {
		err = h.Control.Suspend(r.Context(), name)
	}
	if err != nil {
		failed(w, r, err, h.Log)
		return
	}
	h.accept(w, r, "suspended")
}

// accept answers the request for a change that goes on after the answer.
func (h *handler) accept(w http.ResponseWriter, r *http.Request, status string) {
	h.Log.Info("change accepted", slog.String("path", r.URL.Path), slog.String("client", r.RemoteAddr))
	writeJSON(w, http.StatusAccepted, map[string]string{"status": status})
}

// pathName returns the unescaped {name} of the path.
func pathName(r *http.Request) (string, error) {
	name := chi.URLParam(r, "name")
	if r.URL.RawPath == "" {
		return name, nil
	}
	name, err := url.PathUnescape(name)
	if err != nil {
		return "", fmt.Errorf("%w: the path: %w", ErrInvalid, err)
	}
	return name, nil
}
