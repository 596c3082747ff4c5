package proxy

import (
	"net/http"
	"time"

	"github.com/kgate/kgate/proxy/downstream"
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

	request   *http.Request // as the client sent it, but for its target: see canonical
	requestID string        // empty: it has none
}

var (
	_ http.ResponseWriter = (*exchange)(nil)
	_ http.Hijacker       = (*exchange)(nil)
)

func newExchange(s *snapshot, w http.ResponseWriter, r *http.Request) *exchange {
	conn := downstream.ConnIn(r.Context())
	if conn != nil {
		r.TLS = conn.TLS()
	}
	ex := &exchange{response: newResponse(w, r, conn), visit: visit{snapshot: s, arrived: time.Now(), prefer: -1}, request: r}
	ex.info.Remote = s.clientAddr(r)
	ex.ctx.ex = ex
	return ex
}
