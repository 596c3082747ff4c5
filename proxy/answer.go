package proxy

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strconv"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// WriteHeader implements http.ResponseWriter, for answers of the gateway's own.
func (ex *exchange) WriteHeader(status int) { ex.writeHead(status, nil) }

// writeHead writes the head of an answer: what Header has, these fields, and the gateway's own.
func (ex *exchange) writeHead(status int, fields http1.Fields) {
	if ex.wrote.Load() {
		return
	}
	fields = append(fields, adapt.Fields(ex.given())...)
	ex.decorate(&fields)
	ex.label(&fields)
	ex.response.writeHead(status, fields)
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
	conn, brw, err := ex.response.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if ex.conn != nil {
		ex.conn.Unwatch() // a half-closed connection may still carry an upgrade
		ex.ctx.follow()
	}
	return conn, brw, nil
}

// decorate adds the gateway's own fields to those of an answer.
func (ex *exchange) decorate(fields *http1.Fields) {
	if ex.isForeign() && (ex.request.Chunked || ex.http10 || ex.body.unread()) {
		// In full duplex net/http would take what follows a broken or unread
		// body for the next request. And a request in chunks may have had a
		// Content-Length too, one of HTTP/1.0 Transfer-Encoding, by which somebody in
		// front of the gateway has found another end: RFC 9112, section 6.1, wants the
		// connection closed, and net/http does not say which it was.
		ex.last = true
	}
	if !ex.http1 && ex.conn.Ends() || ex.isDraining() {
		ex.endSoon()
	}
	if ex.prefer >= 0 {
		fields.Add("Preference-Applied", "wait="+strconv.Itoa(ex.prefer))
	}
	if ex.attempt.out != nil && ex.route.pool != nil {
		fields.Add("Server-Timing", ex.timing())
	}
}

// endSoon has the client send its next request to another gateway. Over HTTP/1 those that have
// come already are answered first. In HTTP/2 net/http makes a GOAWAY of it, which ends no request.
func (ex *exchange) endSoon() {
	if ex.http1 && ex.conn != nil {
		ex.conn.EndSoon()
		return
	}
	ex.last = true
}

// label adds to the fields of an answer what the configuration says.
func (ex *exchange) label(fields *http1.Fields) {
	if ex.requestID != "" {
		fields.Set(ex.snapshot.requestID, ex.requestID)
	}
	if hsts := ex.snapshot.cfg.Edge.HSTS; hsts != "" && ex.snapshot.isSecure(ex.request) {
		fields.Set("Strict-Transport-Security", hsts)
	}
	switch {
	case ex.rec.UpstreamStatus != 0:
		ex.route.answer.apply(fields, ex)
	case ex.route != nil:
		ex.expose(fields, &ex.route.cors)
	case isTicketPath(ex.request.URL.Path):
		ex.expose(fields, &ex.snapshot.ticketCORS)
	}
}

// expose lets a page read an answer of the gateway's own.
func (ex *exchange) expose(fields *http1.Fields, cors *CORS) {
	if len(cors.Origins) == 0 || !cors.allow(fields, ex.request) {
		return
	}
	exposed := corsExposed
	if ex.requestID != "" {
		exposed += ", " + ex.snapshot.requestID
	}
	fields.Set("Access-Control-Expose-Headers", exposed)
}

// answerClientGone ends a request whose client has left. Only a client that has
// closed no more than its sending side reads the answer.
func (ex *exchange) answerClientGone() {
	ex.clientGone = true
	ex.last = ex.last || ex.http1 // in HTTP/2 it would end the connection for other requests too
	ex.WriteHeader(statusClientGone)
}

// answerProblem says in an answer of the gateway's own what is wrong with the request.
func (ex *exchange) answerProblem(r *http1.Request, status int, detail string) {
	ex.writeProblem(r, problem{Status: status, Detail: detail, Pool: ex.rec.Pool})
}

// answerDoubt is answerProblem for a request that somebody else may read in another way. What
// follows on its connection may be part of it.
func (ex *exchange) answerDoubt(r *http1.Request, status int, detail string) {
	ex.last = ex.last || ex.http1 // in HTTP/2 streams are apart
	ex.answerProblem(r, status, detail)
}

// writeProblem answers with p, in the form that r accepts.
func (ex *exchange) writeProblem(r *http1.Request, p problem) {
	p.RequestID = ex.requestID
	if !ex.writeErrorPage(r, p) {
		problems.Write(ex, r.Fields.Values("Accept"), p)
	}
}

// refuse answers a request of a pool that was not admitted.
func (ex *exchange) refuse(r *http1.Request, err error) {
	switch {
	case ex.ctx.isStopped():
		err = admission.Draining
	case ex.ctx.Err() != nil:
		ex.rec.Outcome = admission.OutcomeClientGone
		ex.answerClientGone()
		return
	}
	ex.last = ex.last || ex.crowded && ex.http1 // a kept connection takes memory, too
	if errors.Is(err, admission.Draining) {
		ex.endSoon()
	}
	ex.writeProblem(r, ex.refused(ex.Header(), err))
}
