package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// forward sends the request to an upstream and copies the answer. When it
// returns, the upstream has nothing more to do with the request. While no
// connection can be made, and so nothing of the request was sent, it goes to the
// next upstream, with the same slot.
func (h *plane) forward(ex *exchange, r *http.Request) {
	ex.rec.Outcome = OutcomeAdmitted
	if r.Body != nil && r.Body != http.NoBody {
		ex.body.ReadCloser, ex.body.hold, ex.body.trailer = r.Body, &ex.hold, r.Trailer
		r.Body = &ex.body
		ex.hold.upload.least = ex.route.target.MinUpload
		ex.hold.upload.over = cmp.Or(ex.hold.idle, defaultUploadWindow)
		// By default net/http reads an HTTP/1.1 request's body before it sends
		// the answer: an upstream's early "413" would wait, slot in hand, for a
		// slow upload. Not supported means HTTP/2, which needs no such thing.
		_ = http.NewResponseController(ex.ResponseWriter).EnableFullDuplex()
	}
	defer func() {
		if ex.backend != nil {
			// The reverse proxy leaves closing the upgraded connection to a
			// goroutine; the slot must not be free before it is closed.
			_ = ex.backend.Close()
		}
		if ex.hijacked {
			h.upgrades.add(-1)
		}
	}()
	if ex.hold.slot != nil {
		defer ex.watch()()
	}
	t := ex.route.target
	var tried []*backend
	for u := t.pick(nil); u != nil; u = t.pick(tried) {
		if ex.try(r, t, u); !ex.rec.DialFailed {
			break
		}
		tried = append(tried, u)
	}
	switch {
	case ex.upstream == nil:
		h.refuse(ex, r, t, t.downRefusal())
	case ex.failure != nil:
		ex.answerFailure(r)
	}
}

// downRefusal is for requests of a target whose upstreams all fail their checks.
// They get no slot, or give it back: none is held for what may not come.
func (t *target) downRefusal() *Refusal {
	return &Refusal{Reason: ReasonUpstreamDown, RetryAfter: t.Health.Interval}
}

// try sends the request to one upstream.
func (ex *exchange) try(r *http.Request, t *target, u *backend) {
	ex.upstream, ex.failure, ex.verdict = u, nil, verdictNone
	ex.client.Store(u.client)
	ex.rec.Upstream, ex.rec.DialFailed = u.name, false
	defer func() { t.done(u, ex.verdict, ex.failure) }()
	u.proxy.ServeHTTP(ex, r)
}

// upstreamAnswered is every ReverseProxy's ModifyResponse.
func upstreamAnswered(res *http.Response) error {
	ex := exchangeOf(res.Request)
	if cause := ex.hold.broken(); cause != nil {
		return cause
	}
	ex.hold.move()
	ex.verdict = verdictGood
	ex.rec.FirstByte = time.Since(ex.admitted)
	ex.rec.UpstreamStatus = res.StatusCode
	ex.cleanResponse(res)
	if len(res.Trailer) > 0 && ex.overHTTP1 && res.Request.Method != http.MethodHead {
		// As in rewrite: only chunks can have trailers behind them.
		res.ContentLength = -1
		res.Header.Del("Content-Length")
	}
	ex.remaining = res.ContentLength
	if both, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		ex.backend = &upgraded{ReadWriteCloser: both, hold: &ex.hold}
		res.Body = ex.backend
	}
	return nil
}

// upstreamFailed is every ReverseProxy's ErrorHandler: no answer came. It finds
// out whose fault that is, and leaves the answer to forward.
func upstreamFailed(_ http.ResponseWriter, r *http.Request, err error) {
	ex := exchangeOf(r)
	ex.failure = err
	if errors.Is(err, upstream.ErrLapsed) || ex.hold.check() != nil {
		ex.hold.breakOff(errLost) // unless it already was, for another reason
	}
	if ex.hold.broken() != nil || r.Context().Err() != nil || ex.body.failed.Load() {
		return
	}
	var dial *upstream.DialError
	ex.rec.DialFailed = errors.As(err, &dial)
	if ex.rec.DialFailed || !isTimeout(err) {
		ex.verdict = verdictFailed
	}
	ex.handler.cfg.Logger.Debug("upstream failed", slog.String("pool", ex.rec.Pool),
		slog.String("upstream", ex.rec.Upstream), ex.traceAttr(), slog.Any("error", err))
}

// answerFailure tells the client why there is no answer from the upstream.
func (ex *exchange) answerFailure(r *http.Request) {
	p := problem{Status: http.StatusBadGateway, Detail: "the upstream could not be reached or broke off", Pool: ex.rec.Pool}
	switch cause := ex.hold.broken(); {
	case cause != nil:
		ex.answerBroken(r, cause)
		return
	case r.Context().Err() != nil:
		ex.clientGone = true
		writeClientGone(ex, r)
		return
	case ex.body.failed.Load():
		p.Status, p.Detail = http.StatusBadRequest, "the request's body could not be read"
	case isTimeout(ex.failure):
		ex.rec.Outcome = OutcomeUpstreamError
		p.Status, p.Detail = http.StatusGatewayTimeout, "the upstream did not answer in time"
	default:
		ex.rec.Outcome = OutcomeUpstreamError
	}
	writeProblem(ex, r, p)
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
