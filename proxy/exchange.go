package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// exchange is one request and its answer. Calls go down:
//
//	exchange     the order of things: guard, route, admission, forward, record
//	  visit      its wait, its slot, its record
//	    hold     how long it may keep the slot
//	  attempt    the request at one upstream
//	  response   what goes to net/http: the answer, deadlines
//
// It is used by the request's goroutine only, except for ctx, hold, body,
// attempt.client and response.wrote.
type exchange struct {
	response
	visit
	ctx     exchangeContext
	route   *route
	body    requestBody // that is forwarded
	attempt attempt     // the last one

	request   *http.Request // as the client sent it
	requestID string        // empty: it has none
	asks      *http.Request // for a ticket, through the ticket API
	prefer    int           // the preference "wait" that was honoured, else -1
}

var (
	_ http.ResponseWriter = (*exchange)(nil)
	_ http.Hijacker       = (*exchange)(nil)
)

func newExchange(s *snapshot, w http.ResponseWriter, r *http.Request) *exchange {
	conn, secure := connOf(r.Context())
	if secure != nil {
		r.TLS = secure.state
	}
	ex := &exchange{response: newResponse(w, r, conn, s.cfg.StallTimeout), visit: visit{snapshot: s, arrived: time.Now()}, request: r, prefer: -1}
	ex.ctx.parent, ex.ctx.ex = r.Context(), ex
	return ex
}

// serve sees the request through.
func (ex *exchange) serve(r *http.Request) {
	defer ex.ctx.cancel(nil) // ends last: finish asks whether the client has left
	ex.unboundWrites()
	ex.boundNothing(r)
	defer ex.watchDisconnect(r)()
	defer ex.boundEnd(&ex.body)
	defer ex.finish(r)
	ex.identify(r)
	if !ex.guard(r) {
		ex.dispatch(r)
	}
}

// dispatch finds the route and takes the request along it.
func (ex *exchange) dispatch(r *http.Request) {
	if isTicketPath(r.URL.Path) {
		ex.serveTickets(r)
		return
	}
	if ex.route = ex.snapshot.routes.preflight(r); ex.route != nil {
		if !ex.denied(r, ex.route.access) {
			ex.answerPreflight(r)
		}
		return
	}
	if ex.route = ex.snapshot.routes.find(r, r.Method); ex.route == nil {
		ex.noRoute(r)
		return
	}
	pool := ex.route.pool
	if ex.denied(r, ex.route.access) {
		return
	}
	if pool == nil {
		ex.startTrace(r)
		ex.admitted = ex.arrived
		ex.hold.limitStalls(ex.snapshot.cfg.StallTimeout)
		ex.forward(r, r.Body)
		return
	}
	ex.rec.Pool = pool.Name
	ex.startTrace(r)
	if b := ex.route.balancer; b.isDown() {
		ex.refuse(r, b.downRefusal())
		return
	}
	slot, err := ex.admit(r, pool)
	ex.waited()
	switch {
	case errors.Is(err, errAnswered):
		return
	case err != nil:
		ex.refuse(r, err)
		ex.traceWait()
		return
	}
	defer slot.Release()
	ex.enter(slot)
	ex.hold.limit(&ex.ctx, slot, pool)
	ex.hold.limitRates(pool)
	ex.forward(r, r.Body)
}

// WriteHeader implements http.ResponseWriter. Informational answers pass, except an
// upstream's 100: it makes package upstream read the body, upon which net/http
// itself tells the client to go on, and the client should hear it once.
func (ex *exchange) WriteHeader(status int) {
	switch {
	case status < 200:
		ex.hold.move()
		if status == http.StatusContinue {
			return
		}
	case !ex.wrote.Load():
		ex.decorate()
		ex.label()
	}
	ex.response.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (ex *exchange) Write(p []byte) (int, error) {
	if !ex.wrote.Load() {
		ex.WriteHeader(http.StatusOK)
	}
	taken := ex.hold.taking()
	n, err := ex.response.Write(p)
	taken(n)
	ex.hold.move()
	return n, err
}

// flush sends what has been written of the answer.
func (ex *exchange) flush() error {
	defer ex.hold.taking()(0)
	return http.NewResponseController(ex.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker; it is called once the upstream has agreed to an
// upgrade.
func (ex *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	ex.snapshot.streams.add(1)
	conn, brw, err := ex.response.Hijack()
	if err != nil {
		ex.snapshot.streams.add(-1)
		return nil, nil, err
	}
	if ex.conn != nil {
		ex.conn.end() // a half-closed connection may still carry an upgrade
		ex.ctx.follow()
	}
	ex.decorate()
	return conn, brw, nil
}

// decorate adds the gateway's own fields to the header of an answer.
func (ex *exchange) decorate() {
	h := ex.Header()
	if ex.http1 && (ex.chunked || ex.body.unread()) {
		// In full duplex net/http would take what follows a broken or unread
		// body for the next request. And a request in chunks may have had a
		// Content-Length too, by which somebody in front of the gateway has found
		// another end: RFC 9112, section 6.1, wants the connection closed, and
		// net/http does not say which it was.
		h.Set("Connection", "close")
	}
	if draining := ex.snapshot.cfg.Draining; draining != nil && draining() {
		// The next request goes to another gateway. In HTTP/2 net/http makes it a
		// GOAWAY, which ends no request.
		h.Set("Connection", "close")
	}
	if ex.prefer >= 0 {
		h.Add("Preference-Applied", "wait="+strconv.Itoa(ex.prefer))
	}
	if ex.attempt.out == nil || ex.route.pool == nil {
		return
	}
	b := make([]byte, 0, 40)
	b = append(b, `kgate;desc="queue";dur=`...)
	b = strconv.AppendFloat(b, float64(ex.rec.Wait.Microseconds())/1000, 'f', -1, 64)
	if before := h["Server-Timing"]; len(before) > 0 {
		h["Server-Timing"] = append(before[:len(before):len(before)], string(b))
	} else {
		h["Server-Timing"] = ex.attempt.out.value(string(b))
	}
}

// label puts into the header of an answer what the configuration says.
func (ex *exchange) label() {
	h := ex.Header()
	if ex.requestID != "" {
		h[ex.snapshot.requestID] = []string{ex.requestID}
	}
	if hsts := ex.snapshot.cfg.Edge.HSTS; hsts != "" && ex.snapshot.isSecure(ex.request) {
		h["Strict-Transport-Security"] = []string{hsts}
	}
	switch {
	case ex.rec.UpstreamStatus != 0:
		ex.route.answer.apply(h, ex)
	case ex.route != nil:
		ex.exposeRefusal(h)
	}
}

// finish sees every request out, also a panicking one.
func (ex *exchange) finish(r *http.Request) {
	v := recover()
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
		ex.snapshot.cfg.Logger.Error("panic while serving a request", slog.String("panic", fmt.Sprint(v)),
			ex.traceAttr(), slog.String("stack", string(debug.Stack())))
		if !ex.wrote.Load() {
			ex.answerProblem(r, http.StatusInternalServerError, "the gateway failed")
			v = nil
		}
	}
	rec := &ex.rec
	if v != nil {
		rec.Aborted = true
		if rec.Outcome == admission.OutcomeAdmitted && !ex.clientGone && ex.ctx.Err() == nil {
			rec.Outcome = admission.OutcomeUpstreamError
		}
	}
	ex.held()
	if cause := ex.hold.aborted(); cause != nil {
		rec.Aborted = rec.Aborted || ex.hijacked
		if rec.Aborted || rec.UpstreamStatus == 0 {
			ex.logAborted(r, cause)
		}
	}
	ex.cleanTrailers()
	rec.Status, rec.Bytes, rec.RequestBytes = ex.status, ex.bytes, ex.body.read.Load()
	if ex.route != nil {
		ex.done()
	}
	ex.logAccess(r)
	if v != nil {
		// net/http ends the connection, so that the client does not take a
		// broken answer for a whole one, and says nothing.
		panic(http.ErrAbortHandler)
	}
}
