package admin

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"sync/atomic"
	"time"
)

var (
	//go:embed page
	pageFiles embed.FS

	pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"millis":  Millis,
		"rate":    Rate,
		"seconds": Seconds,
		"uptime":  Uptime,
	}).ParseFS(pageFiles, "page/*.html"))
)

// assets are the files that the page loads.
var assets = map[string]http.HandlerFunc{
	"page.css": asset("page.css", "text/css; charset=utf-8"),
	"page.js":  asset("page.js", "text/javascript; charset=utf-8"),
	"icon.svg": asset("icon.svg", "image/svg+xml"),
}

func asset(name, kind string) http.HandlerFunc {
	data, err := fs.ReadFile(pageFiles, path.Join("page", name))
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(data)
	}
}

// page answers with the whole page. Its script replaces the part that changes with the HTML that
// [handler.events] sends. One template makes both.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	v, err := h.view(r.Context())
	var b bytes.Buffer
	if err == nil {
		err = pageTemplate.Execute(&b, v)
	}
	if err != nil {
		h.Log.Error("status page cannot be rendered", slog.Any("error", err))
		problem(w, r, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// view returns what the page shows.
func (h *handler) view(ctx context.Context) (*view, error) {
	s, entries, err := h.fleet.look(ctx, question{entries: linesShown})
	if err != nil {
		return nil, err
	}
	return newView(s, entries, time.Now()), nil
}

// live is the last rendering of the page's changing part, shared by all viewers.
type live struct {
	viewers atomic.Int64
	last    atomic.Pointer[rendered]
}

type rendered struct {
	at   time.Time
	html string
}

const (
	// maxViewers bounds the pages that are kept up to date.
	maxViewers = 200
	// viewEvery is how often the pages are updated.
	viewEvery = time.Second
)

// events keeps a page up to date by server-sent events: once a second the part
// that changes, as HTML.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	if h.live.viewers.Add(1) > maxViewers {
		h.live.viewers.Add(-1)
		failed(w, r, fmt.Errorf("%w: %d pages are open; this one has to be loaded again to be new", ErrTooMany, maxViewers), h.Log)
		return
	}
	defer h.live.viewers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := eventStream{w: w, c: http.NewResponseController(w)}
	tick := time.NewTicker(viewEvery)
	defer tick.Stop()
	for {
		text, err := h.render(r.Context())
		if err != nil {
			return
		}
		extend(w, viewEvery+writeFor)
		if s.send("live", text) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// render returns the part of the page that changes. It renders it about once a second for all
// viewers; viewers that find it old at the same time each render it.
func (h *handler) render(ctx context.Context) (string, error) {
	if last := h.live.last.Load(); last != nil && time.Since(last.at) < keepRound {
		return last.html, nil
	}
	v, err := h.view(ctx)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&b, "live", v); err != nil {
		h.Log.Error("status page cannot be rendered", slog.Any("error", err))
		return "", err
	}
	h.live.last.Store(&rendered{at: time.Now(), html: b.String()})
	return b.String(), nil
}
