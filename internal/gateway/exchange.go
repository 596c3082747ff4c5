package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
)

// What gateways ask each other, apart from the messages of the algorithm, are calls with JSON: it
// is rare, can be long, and each question wants an answer.

// CallFleet asks the fleet handler of another gateway, by POST if there is a body. The
// path begins with a slash. It fails with ErrElsewhere for a gateway that is not in the view.
func (g *Gateway) CallFleet(ctx context.Context, name, path string, body, into any) error {
	m, in := g.views.View().Named(name)
	if !in {
		return fmt.Errorf("%w: %s is not in the cluster", admission.ErrElsewhere, name)
	}
	return g.call(ctx, m, fleetCall+strings.TrimPrefix(path, "/"), body, into)
}

// Answer answers what another gateway asks with [Links].Call.
func (g *Gateway) Answer(ctx context.Context, caller transport.Caller, name string, body []byte) ([]byte, error) {
	if !g.serving.Load() {
		return nil, transport.ErrUnknownCall
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	if pool, ours := strings.CutPrefix(name, lineCall); ours {
		p := g.pool(pool)
		if p == nil {
			return nil, admission.ErrUnknownPool
		}
		return json.Marshal(lineOf(p))
	}
	if pool, ours := strings.CutPrefix(name, sharesCall); ours {
		p := g.pool(pool)
		if p == nil {
			return nil, admission.ErrUnknownPool
		}
		return p.hearShares(caller.Name, body)
	}
	if path, ours := strings.CutPrefix(name, fleetCall); ours {
		if h := g.fleet.Load(); h != nil {
			return answerBy(ctx, *h, "/"+path, body)
		}
	}
	if name == ticketsCall {
		return g.tickets.answer(ctx, body)
	}
	return nil, transport.ErrUnknownCall
}

// answerBy has a handler answer.
func answerBy(ctx context.Context, h http.Handler, path string, body []byte) ([]byte, error) {
	method := http.MethodGet
	if len(body) > 0 {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	w := answerWriter{header: make(http.Header), status: http.StatusOK}
	h.ServeHTTP(&w, r)
	if w.status != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", http.StatusText(w.status), w.Bytes())
	}
	return w.Bytes(), nil
}

// answerWriter keeps what a handler writes.
type answerWriter struct {
	bytes.Buffer
	header http.Header
	status int
}

var _ http.ResponseWriter = (*answerWriter)(nil)

// Header implements http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) { w.status = status }
