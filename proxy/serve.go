package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

func (ex *exchange) serve(r *http1.Request) {
	defer ex.ctx.cancel(nil) // ends last: finish asks whether the client has left
	ex.boundNothing(r)
	defer ex.unwatchClient(ex.watchClient(r))
	defer ex.boundEnd(&ex.body)
	defer ex.finish(r)
	ex.identify(r)
	if !ex.guard(r) {
		ex.dispatch(r)
	}
}

// dispatch finds the route and takes the request along it.
func (ex *exchange) dispatch(r *http1.Request) {
	if isTicketPath(r.URL.Path) {
		ex.serveTickets(r)
		return
	}
	if ex.route = ex.snapshot.routes.preflight(r); ex.route != nil {
		if !ex.denied(r, ex.route.access) {
			ex.answerPreflight(r, &ex.route.cors)
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
		ex.entered = true
		ex.lend()
		ex.hold.limitStalls(ex.conn.StallTimeout())
		ex.forward(r)
		return
	}
	ex.rec.Pool = pool.Name
	ex.startTrace(r)
	if b := ex.route.balancer; b.isDown() {
		ex.refuse(r, b.downRefusal())
		return
	}
	ex.takeHead(r)
	slot, err := ex.admit(r, pool)
	ex.giveHead()
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
	ex.lend()
	ex.hold.limit(&ex.ctx, slot, pool)
	ex.hold.limitRates(pool)
	ex.forward(r)
}

// admit gets the request a slot. A client that prefers a ticket may be answered with one
// instead.
func (ex *exchange) admit(r *http1.Request, pool *Pool) (Slot, error) {
	if pool.Tickets && prefersTicket(r.Fields) && len(r.Fields.Values(ticketHeader)) == 0 {
		return ex.admitOrTicket(r, pool)
	}
	return ex.visit.admit(&ex.ctx, ex, r, pool)
}

// finish ends every request, also a request that panics.
func (ex *exchange) finish(r *http1.Request) {
	v := recover()
	ex.giveHead()
	if v != nil && v != http.ErrAbortHandler { // a panic's value is compared as net/http does
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
		rec.Aborted = rec.Aborted || ex.hijacked.Load()
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
	ex.giveBack(v == nil)
	if v != nil {
		// net/http ends the connection, so that the client does not take a
		// broken answer for a whole one, and says nothing.
		panic(http.ErrAbortHandler)
	}
}
