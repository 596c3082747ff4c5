package proxy

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/tcpstate"
	"github.com/kgate/kgate/proxy/upstream"
)

// attempt is the request at one upstream.
type attempt struct {
	backend atomic.Pointer[backend]
	out     *outgoing
}

const copyBufferSize = 32 << 10

// buffers are what answers are copied through.
var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// forward sends the request to an upstream and copies the answer. When it
// returns, the upstream has nothing more to do with the request. While no
// connection can be made, and so nothing of the request was sent, it goes to the
// next upstream, with the same slot.
func (ex *exchange) forward(r *http1.Request) {
	ex.rec.Outcome = admission.OutcomeAdmitted
	ex.unread = unreadBody{}
	if r.Body != nil {
		ex.body.ex = ex
		ex.fullDuplex()
	}
	ex.watch()
	defer ex.hold.end()
	b := ex.route.balancer
	if to := admission.UpstreamOf(ex.hold.slot); to != "" {
		ex.forwardAgreed(r, to)
		return
	}
	var tried []*backend
	for u := b.pick(nil); u != nil; u = b.pick(tried) {
		ex.rec.Retries = len(tried)
		ex.try(r, u)
		if !ex.rec.DialFailed {
			break
		}
		tried = append(tried, u)
	}
	switch {
	case ex.attempt.backend.Load() == nil:
		ex.refuse(r, b.downRefusal())
	case ex.failure != nil:
		ex.answerFailure(r)
	}
}

// lend gets the exchange what it needs once it is admitted.
func (ex *exchange) lend() {
	out := outgoings.Get().(*outgoing)
	out.moving = moving{}
	ex.attempt.out, ex.hold.moving = out, &out.moving
}

// giveBack lets others use what the exchange had, if it is whole and nobody else may use it still.
// Package upstream may read a body behind its answer.
func (ex *exchange) giveBack(whole bool) {
	out := ex.attempt.out
	if !whole || out == nil || out.shared || ex.body.ex != nil || ex.hijacked.Load() || ex.spans != nil {
		return
	}
	ex.attempt.out, out.Request = nil, upstream.Request{}
	outgoings.Put(out)
	if ours := ex.ours(); ours != nil {
		ours.Reuse()
	}
}

// forwardAgreed is forward for a slot that is for one upstream. While that cannot be reached, the
// request waits again, for a slot of another one.
func (ex *exchange) forwardAgreed(r *http1.Request, to string) {
	b := ex.route.balancer
	for tried := 0; ; {
		if !b.isBarred(to) {
			u := b.take(to)
			if u == nil {
				ex.refuse(r, b.downRefusal())
				return
			}
			ex.rec.Retries = tried
			ex.try(r, u)
			if tried++; !ex.rec.DialFailed {
				break
			}
		}
		limit, _ := queueTimeout(ex.route.pool.QueueTimeout, r.Fields)
		var err error
		if to, err = ex.again(&ex.ctx, ex.route.pool, limit); err != nil {
			if ex.hold.aborted() != nil {
				break
			}
			ex.refuse(r, err)
			return
		}
		ex.watch()
	}
	if ex.failure != nil {
		ex.answerFailure(r)
	}
}

// try sends the request to one upstream and copies its answer.
func (ex *exchange) try(r *http1.Request, u *backend) {
	at := ex.attempt.out
	ex.attempt.backend.Store(u)
	at.verdict, at.settled, ex.failure = verdictNone, false, nil
	ex.rec.Upstream, ex.rec.UpstreamURL, ex.rec.DialFailed = u.name, &u.configured, false
	defer func() {
		if !at.settled {
			ex.route.balancer.settled(u, ex.gaveUp())
		}
		ex.route.balancer.done(u, at.verdict, ex.failure)
	}()
	out := ex.outgoing(r)
	ex.fillFields(out, r)
	res, err := u.requests.Do(out, ex)
	if err == nil {
		err = ex.answer(out, res)
	}
	if err != nil {
		ex.upstreamFailed(r, err)
	}
	at.shared = at.shared || err != nil || res.ProtoMajor == 2 // net/http may still look at it
}

var (
	_ upstream.Caller  = (*exchange)(nil)
	_ upstream.Bounded = (*exchange)(nil)
)

// Check implements upstream.Caller.
func (ex *exchange) Check() error { return ex.hold.check() }

// MaySend implements upstream.Bounded: a ticket's slot can end before the lease.
func (ex *exchange) MaySend() bool { return ex.hold.isValid() }

// Rate implements upstream.Paced.
func (ex *exchange) Rate() int64 { return ex.hold.down.Rate() }

// Connected implements upstream.Caller.
func (ex *exchange) Connected(conn net.Conn, reused bool) {
	ex.hold.looksAt(conn)
	if reused {
		ex.rec.ReusedConns++
	} else {
		ex.rec.NewConns++
	}
}

// Informational implements upstream.Caller: it passes such an answer on.
func (ex *exchange) Informational(status int, fields http1.Fields) error {
	if ex.hold.move(); status == http.StatusContinue {
		return nil // it makes package upstream read the body, upon which the server itself tells the client to go on
	}
	defer ex.hold.taking()(0)
	ex.response.writeHead(status, appendEndToEnd(nil, fields))
	// net/http does not say that it could not write: it ends its context.
	return ex.ctx.Err()
}

// Sends implements upstream.Caller: some of the body, at least, waits to be read.
func (ex *exchange) Sends() bool {
	return ex.http1 && ex.conn != nil && (ex.request.Ahead > 0 || tcpstate.HasUnread(ex.conn.NetConn()))
}

// StopUpload implements upstream.Caller.
func (ex *exchange) StopUpload() bool {
	there := !ex.clientFailed()
	if http.NewResponseController(ex.ResponseWriter).SetReadDeadline(time.Now()) != nil {
		return false
	}
	if there {
		ex.stopped.Store(true) // net/http now takes the client for gone
	}
	ex.hold.up.stop()
	return true
}

// answer copies an upstream's answer. When it returns, or panics, the upstream has
// nothing more to do with the request. An error means that nothing was copied.
func (ex *exchange) answer(out *upstream.Request, res *upstream.Response) error {
	defer res.Body.Close()
	if cause := ex.hold.aborted(); cause != nil {
		return cause
	}
	ex.hold.move()
	ex.attempt.out.verdict, ex.attempt.out.settled = verdictGood, true
	if res.StatusCode >= http.StatusInternalServerError {
		ex.attempt.out.verdict = verdictError
	}
	ex.route.balancer.settled(ex.attempt.backend.Load(), settlingAnswered)
	ex.rec.FirstByte = time.Since(ex.admitted())
	ex.rec.UpstreamStatus = res.StatusCode
	if res.StatusCode == http.StatusSwitchingProtocols {
		return ex.upgrade(out, res)
	}
	removeReserved(res.Trailer)
	wants := res.Fields.Values("Upgrade")
	removeNamed(&res.Fields)
	var announced []string
	if len(res.Trailer) > 0 {
		announced = slices.Sorted(maps.Keys(res.Trailer)) // before a Read adds others
	}
	if len(announced) > 0 && ex.http1 && out.Method != http.MethodHead {
		// As in outgoing: only chunks can have trailers behind them.
		res.ContentLength = -1
		res.Fields.Delete("Content-Length")
	}
	ex.remaining = res.ContentLength
	buf := buffers.Get().(*[copyBufferSize]byte)
	defer buffers.Put(buf)
	first, err := ex.firstPiece(res, buf[:])
	if err != nil {
		return err
	}
	fields := appendEndToEnd(ex.attempt.out.answer[:0], res.Fields)
	if res.StatusCode == http.StatusUpgradeRequired && ex.http1 && len(wants) > 0 { // RFC 9110, section 15.5.22
		fields.Add("Connection", "Upgrade")
		fields.Add("Upgrade", strings.Join(wants, ", "))
	}
	if len(announced) > 0 {
		fields.Add("Trailer", strings.Join(announced, ", "))
	}
	ex.writeHead(res.StatusCode, fields)
	for _, name := range announced { // the head is out: net/http would say it again in the trailer
		delete(ex.Header(), name)
	}
	if err := ex.copyBody(res, buf[:], first); err != nil {
		if ex.hold.check() == nil && errors.As(err, new(http1.Rule)) {
			ex.failure, ex.attempt.out.verdict = err, verdictFailed
		}
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
	if len(res.Trailer) > 0 {
		// Else net/http would compute the length of a short body.
		_ = http.NewResponseController(ex.ResponseWriter).Flush()
		for name, values := range res.Trailer {
			ex.Header()[http.TrailerPrefix+name] = values
		}
	}
	return nil
}

// streams reports whether an answer is one of unknown length: each piece of its body is sent as
// it comes.
func streams(res *upstream.Response) bool { return res.ContentLength < 0 && res.Body != http.NoBody }

// piece is what a Read of an answer's body has returned.
type piece struct {
	n    int
	err  error
	none bool // there was no Read: the header is to be sent first
}

// firstPiece reads the first piece of an answer's body, before anything of the answer is sent: if
// that fails, there is no answer. Of an answer of unknown length whose body is still to come,
// the header does not wait for it.
func (ex *exchange) firstPiece(res *upstream.Response, buf []byte) (piece, error) {
	if ready, ok := res.Body.(interface{ Ready() bool }); streams(res) && (!ok || !ready.Ready()) {
		return piece{none: true}, nil
	}
	n, err := ex.readBody(res.Body, buf)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		ex.attempt.out.verdict, ex.rec.UpstreamStatus, ex.remaining = verdictNone, 0, 0
		return piece{}, err
	}
	return piece{n: n, err: err}, nil
}

// copyBody copies the body of an answer, whose first piece is in buf. Pieces of known length
// are flushed by Write.
func (ex *exchange) copyBody(res *upstream.Response, buf []byte, first piece) error {
	if first.none {
		_ = ex.flush()
	}
	for n, err := first.n, first.err; ; n, err = ex.readBody(res.Body, buf) {
		if n > 0 {
			if _, werr := ex.Write(buf[:n]); werr != nil {
				return werr
			}
			if streams(res) && err == nil {
				if ferr := ex.flush(); ferr != nil {
					ex.clientGone = true
					return ferr
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if done, err := ex.splice(res.Body); done {
			return err
		}
	}
}

// readBody reads from an answer's body, at its pace.
func (ex *exchange) readBody(body io.Reader, p []byte) (int, error) {
	if body == http.NoBody || ex.remaining == 0 {
		return body.Read(p) // only its end is left
	}
	want := len(p)
	if ex.remaining > 0 {
		want = int(min(ex.remaining, int64(want)))
	}
	may, err := ex.hold.down.take(want)
	if err != nil {
		return 0, err
	}
	n, err := body.Read(p[:may])
	ex.hold.down.unused(may - n)
	return n, err
}

// cleanTrailers removes from the trailers of an answer what only the gateway may
// say. They have come when the answer has ended.
func (ex *exchange) cleanTrailers() {
	if ex.rec.UpstreamStatus != 0 && ex.remaining < 0 { // of no known length: it may have some
		removeReserved(ex.Header())
	}
}

// upstreamFailed finds out whose fault it is that no answer came, and leaves the
// answer to forward.
func (ex *exchange) upstreamFailed(r *http1.Request, err error) {
	ex.failure = err
	if errors.Is(err, upstream.ErrLapsed) || ex.hold.check() != nil {
		ex.hold.abort(errLost) // unless it already was, for another reason
	}
	if ex.ctx.isStopped() {
		ex.hold.abort(errStops)
	}
	if ex.hold.aborted() != nil || ex.clientFailed() {
		return
	}
	var invalid *upstream.InvalidRequestError
	if errors.As(err, &invalid) {
		return // nothing was sent: it says nothing of the upstream
	}
	var dial *upstream.DialError
	var upgrade *upstream.UpgradeError
	ex.rec.DialFailed = errors.As(err, &dial)
	switch {
	case errors.As(err, &upgrade):
		ex.attempt.out.verdict = verdictNone // else any client could take the upstream out
	case ex.rec.DialFailed || !isTimeout(err) && !ex.stopped.Load(): // some servers give up an upload that does not end
		ex.attempt.out.verdict = verdictFailed
	}
	ex.logFailure(ex.ctx.base)
}

// clientFailed reports whether the client has left, or its body could not be read.
func (ex *exchange) clientFailed() bool {
	return !ex.stopped.Load() && (ex.ctx.Err() != nil || ex.body.failed.Load())
}

// answerFailure tells the client why there is no answer from the upstream.
func (ex *exchange) answerFailure(r *http1.Request) {
	status, detail := http.StatusBadGateway, "the upstream could not be reached or broke off"
	var invalid *upstream.InvalidRequestError
	var upgrade *upstream.UpgradeError
	switch cause := ex.hold.aborted(); {
	case cause != nil:
		ex.answerAborted(r, cause)
		return
	case ex.clientFailed() && ex.ctx.Err() != nil:
		ex.answerClientGone()
		return
	case ex.clientFailed():
		status, detail = http.StatusBadRequest, "the request's body could not be read"
	case errors.As(ex.failure, &invalid):
		ex.answerDoubt(r, http.StatusBadRequest, "the request cannot be passed on: "+invalid.Detail)
		return
	case isTimeout(ex.failure):
		ex.rec.Outcome = admission.OutcomeUpstreamError
		status, detail = http.StatusGatewayTimeout, "the upstream did not answer in time"
	case errors.As(ex.failure, &upgrade):
		ex.rec.Outcome = admission.OutcomeUpstreamError
		detail = "no upgrade: " + upgrade.Detail
	default:
		ex.rec.Outcome = admission.OutcomeUpstreamError
	}
	ex.answerProblem(r, status, detail)
}
