package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
)

// exchange is one request and its answer. Calls go down:
//
//	serve.go     the order of things: guard, route, admission, forward, record
//	forward.go   the request at an upstream, and its answer
//	answer.go    the answer as it goes out, with what the gateway adds to it
//	  visit      its wait, its slot, its record
//	    hold     how long it may keep the slot
//	  response   what goes to net/http: the answer, deadlines
//
// It is used by the request's goroutine only, except for ctx, hold, body,
// attempt.backend, response.wrote and response.stopped.
type exchange struct {
	response
	visit
	ctx     exchangeContext
	route   *route
	body    requestBody // that is forwarded
	attempt attempt     // the last one

	request   *http1.Request // as the client sent it, but for its target: see canonical
	requestID string         // empty: it has none
}

var (
	_ http.ResponseWriter = (*exchange)(nil)
	_ http.Hijacker       = (*exchange)(nil)
)

// newExchange returns the exchange of a request whose context ctx is.
func newExchange(ctx context.Context, s *snapshot, w http.ResponseWriter, r *http1.Request) *exchange {
	conn := downstream.ConnIn(ctx)
	r.Secure = r.Secure || conn != nil && conn.IsTLS()
	canonical(r)
	ex := &exchange{response: newResponse(w, r, conn), visit: visit{snapshot: s, arrived: time.Now(), prefer: -1}, request: r}
	ex.info.Remote = s.clientAddr(ctx, conn, r)
	ex.ctx.ex, ex.ctx.base = ex, ctx
	return ex
}
