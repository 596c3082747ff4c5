package proxy

import (
	"bufio"
	"net"
	"net/http"
	"strconv"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
)

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
	conn, brw, err := ex.response.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if ex.conn != nil {
		ex.conn.Unwatch() // a half-closed connection may still carry an upgrade
		ex.ctx.follow()
	}
	ex.decorate()
	return conn, brw, nil
}

// decorate adds the gateway's own fields to the header of an answer.
func (ex *exchange) decorate() {
	h := ex.Header()
	if ex.isForeign() && (ex.chunked || ex.http10 || ex.body.unread()) {
		// In full duplex net/http would take what follows a broken or unread
		// body for the next request. And a request in chunks may have had a
		// Content-Length too, one of HTTP/1.0 Transfer-Encoding, by which somebody in
		// front of the gateway has found another end: RFC 9112, section 6.1, wants the
		// connection closed, and net/http does not say which it was.
		h.Set("Connection", "close")
	}
	if !ex.http1 && ex.conn.Ends() || ex.isDraining() {
		// The next request goes to another gateway. In HTTP/2 net/http makes it a
		// GOAWAY, which ends no request. Of HTTP/1, package downstream sees to it.
		h.Set("Connection", "close")
	}
	if ex.prefer >= 0 {
		h.Add("Preference-Applied", "wait="+strconv.Itoa(ex.prefer))
	}
	if ex.attempt.out == nil || ex.route.pool == nil {
		return
	}
	if before := h["Server-Timing"]; len(before) > 0 {
		h["Server-Timing"] = append(before[:len(before):len(before)], ex.timing())
	} else {
		h["Server-Timing"] = ex.attempt.out.value(ex.timing())
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
		ex.expose(h, &ex.route.cors)
	case isTicketPath(ex.request.URL.Path):
		ex.expose(h, &ex.snapshot.ticketCORS)
	}
}

// expose lets a page read an answer of the gateway's own.
func (ex *exchange) expose(h http.Header, cors *CORS) {
	if len(cors.Origins) == 0 || !cors.allow(h, ex.request) {
		return
	}
	exposed := corsExposed
	if ex.requestID != "" {
		exposed += ", " + ex.snapshot.requestID
	}
	h.Set("Access-Control-Expose-Headers", exposed)
}

// answerClientGone ends a request whose client has left. Only a client that has
// closed no more than its sending side reads the answer.
func (ex *exchange) answerClientGone() {
	ex.clientGone = true
	if ex.http1 { // in HTTP/2 it would end the connection for other requests too
		ex.Header().Set("Connection", "close")
	}
	ex.WriteHeader(statusClientGone)
}

// answerProblem says in an answer of the gateway's own what is wrong with the request.
func (ex *exchange) answerProblem(r *http.Request, status int, detail string) {
	ex.writeProblem(r, problem{Status: status, Detail: detail, Pool: ex.rec.Pool})
}

// answerDoubt is answerProblem for a request that somebody else may read in another way. What
// follows on its connection may be part of it.
func (ex *exchange) answerDoubt(r *http.Request, status int, detail string) {
	if ex.http1 { // in HTTP/2 streams are apart
		ex.Header().Set("Connection", "close")
	}
	ex.answerProblem(r, status, detail)
}

// writeProblem answers with p, in the form that r accepts.
func (ex *exchange) writeProblem(r *http.Request, p problem) {
	p.RequestID = ex.requestID
	if !ex.writeErrorPage(r, p) {
		problems.Write(ex, r, p)
	}
}

// refuse answers a request of a pool that was not admitted.
func (ex *exchange) refuse(r *http.Request, err error) {
	switch {
	case ex.ctx.isStopped():
		err = admission.Draining
	case ex.ctx.Err() != nil:
		ex.rec.Outcome = admission.OutcomeClientGone
		ex.answerClientGone()
		return
	}
	if ex.crowded && ex.http1 {
		ex.Header().Set("Connection", "close") // one that is kept takes memory, too
	}
	ex.writeProblem(r, ex.refused(ex.Header(), err))
}
