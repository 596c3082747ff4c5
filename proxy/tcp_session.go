package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
	"go.opentelemetry.io/otel/attribute"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/upstream"
)

// session is one TCP connection of a client. Nothing of what the
// client sends is read before admission: it waits in the kernel, which stops the client
// when its window is full. A session that is not admitted, or is aborted, ends with a
// reset: many protocols end an answer by closing the connection, and would take one that
// is cut short, or none at all, for the whole.
type session struct {
	visit
	route   *route
	conn    *downstream.Conn
	ctx     context.Context // ends with the server, and with the hold
	cancel  context.CancelCauseFunc
	backend *backend
	tunnel  atomic.Pointer[upstream.Tunnel] // to backend, for cut
	said    []byte                          // that was read to find the route
}

// errLeft is why a session ends whose client has left while it waited.
var errLeft = errors.New("the client has left")

// leaveTime is how long a session stays in line whose client has closed its sending side.
// From here a client that has left looks the same as one that has said all it has to say,
// as in "echo request | nc". Where a slot is free, the second kind is served.
const leaveTime = 50 * time.Millisecond

// dialGrace is leaveTime for a session that has its slot, while its upstream is dialled:
// one that is far away takes longer, and a client may have said all it has to say.
const dialGrace = time.Second

// ServeConn implements downstream.Handler. The configuration routes connections by the
// listener's name.
func (h *Handler) ServeConn(ctx context.Context, conn *downstream.Conn, listener string) {
	s := h.current.Load()
	route := s.tcp[listener]
	if route == nil { // a reload has taken it away
		conn.Reset()
		return
	}
	if !route.access.allows(conn.Peer()) {
		if suppressed, ok := s.once.Allow("access"); ok {
			s.cfg.Logger.Info("connection refused: clients of this address are not served", slog.String("remote", conn.RemoteAddr().String()),
				slog.String("listener", listener), slog.Int("suppressed", suppressed))
		}
		conn.Reset()
		return
	}
	server := ""
	var said []byte
	if len(route.named) > 0 {
		var err error
		if server, said, err = conn.ServerName(); err != nil {
			conn.Reset()
			return
		}
	}
	to := route.find(server)
	if to == nil {
		conn.Reset()
		return
	}
	se := newSession(ctx, s, to, conn)
	se.said, se.info.Path = said, listener
	se.serve()
}

func newSession(base context.Context, s *snapshot, route *route, conn *downstream.Conn) *session {
	se := &session{visit: visit{snapshot: s, arrived: time.Now()}, route: route, conn: conn}
	se.ctx, se.cancel = context.WithCancelCause(base)
	se.rec.Pool = route.pool.Name
	se.info = admission.RequestInfo{Method: "TCP", Remote: conn.Peer()}
	return se
}

func (se *session) serve() {
	defer se.cancel(nil)
	defer se.finish()
	se.startTrace()
	slot, err := se.admit()
	se.waited()
	if err != nil {
		se.refuse(err)
		se.traceWait()
		return
	}
	defer slot.Release()
	se.enter(slot)
	se.forward(slot)
}

// startTrace begins the connection's span, if it is sampled: a connection brings no trace
// context, so the lot decides.
func (se *session) startTrace() {
	if cfg := &se.snapshot.cfg; cfg.Tracer != nil && byLot(cfg.SampleRatio) {
		// Spans outlive the session's context.
		se.beginTrace(context.Background(), "TCP "+se.info.Path, []attribute.KeyValue{
			attribute.String("network.transport", "tcp"),
			attribute.String("client.address", se.info.Remote.String()),
			attribute.String("kgate.pool", se.rec.Pool),
		})
	}
}

// admit waits for a slot, as long as the client stays.
func (se *session) admit() (Slot, error) {
	if b := se.route.balancer; b.isDown() {
		return nil, b.downRefusal()
	}
	ctx, stop := se.whileThere(leaveTime)
	defer stop()
	pool := se.route.pool
	req := se.lineRequest(pool)
	if req.Wait = pool.QueueTimeout; pool.TellClients {
		req.Client = addressKey(se.info.Remote)
	}
	return se.snapshot.cfg.Admitter.Acquire(ctx, req)
}

// watcher is a function that is called when the client leaves.
type watcher func()

// ClientLeft implements downstream.Watcher.
func (f watcher) ClientLeft() { f() }

// whileThere returns a context that ends, with errLeft, some time after the client has
// left, or with the session. stop must be called.
func (se *session) whileThere(grace time.Duration) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(se.ctx)
	var leaving *time.Timer
	se.conn.Watch(watcher(func() { leaving = time.AfterFunc(grace, func() { cancel(errLeft) }) }))
	return ctx, func() {
		se.conn.Unwatch()
		if leaving != nil {
			leaving.Stop()
		}
		cancel(nil)
	}
}

// refuse ends a session that was not admitted.
func (se *session) refuse(err error) {
	switch {
	case errors.Is(context.Cause(se.ctx), downstream.ErrStopped):
		se.refused(make(http.Header), admission.Draining)
	case errors.Is(err, errLeft) || se.ctx.Err() != nil:
		se.rec.Outcome = admission.OutcomeClientGone
	default:
		se.refused(make(http.Header), err)
	}
	se.conn.Reset()
}

// forward joins the client with an upstream. When it returns both connections are closed.
func (se *session) forward(slot Slot) {
	se.hold.limit(se.ctx, slot, se.route.pool)
	if se.hold.idle > 0 && se.conn.TellsAcked() {
		se.hold.client.conn = se.conn.NetConn()
	}
	se.hold.begin(se, se.snapshot.alarms)
	defer se.hold.end()
	defer context.AfterFunc(se.ctx, se.reset)()
	tunnel := se.connect()
	if tunnel == nil {
		se.conn.Reset()
		return
	}
	defer func() { se.route.balancer.done(se.backend, verdictNone, nil) }()
	se.hold.looksAt(tunnel.Stream())
	if se.tunnel.Store(tunnel); se.hold.check() != nil || se.ctx.Err() != nil {
		se.reset() // cut may have come too early to see the tunnel
		return
	}
	tunnel.HoldBack(&se.hold.down)
	if err := se.introduce(tunnel); err != nil {
		se.failure, se.rec.Outcome = err, admission.OutcomeUpstreamError
		se.reset()
		return
	}
	j := joint{tunnel: tunnel, hold: &se.hold, since: se.admitted(), reset: se.reset, rest: restTime}
	j.lead(se.conn, se.conn, se.said)
	j.run()
	_ = se.conn.Close() // after a reset it does nothing
	se.rec.RequestBytes, se.rec.Bytes, se.rec.FirstByte = j.up, j.down, j.firstByte
	if se.rec.Aborted = j.err != nil; j.broke && se.ctx.Err() == nil {
		se.failure, se.rec.Outcome = j.err, admission.OutcomeUpstreamError
	}
}

// introduce sends the upstream a PROXY header, if it expects one. Version 2 has the fence,
// too, as the connection's unique id.
func (se *session) introduce(t *upstream.Tunnel) error {
	version := se.backend.transport.ProxyHeader
	if version == 0 {
		return nil
	}
	h := proxyproto.HeaderProxyFromAddrs(byte(version), se.conn.RemoteAddr(), se.conn.LocalAddr())
	if fence := se.hold.slot.Fence(); version == 2 && se.route.pool.Fence && fence != "" {
		if err := h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: []byte(fence)}}); err != nil {
			return err
		}
	}
	_, err := h.WriteTo(t)
	return err
}

// cut is the hold's: when it returns, both connections are closed.
func (se *session) cut(cause *abortCause) {
	se.cancel(cause)
	se.reset()
}

// reset breaks both connections off.
func (se *session) reset() {
	if t := se.tunnel.Load(); t != nil {
		_ = t.Close()
	}
	se.conn.Reset()
}

// connect opens a connection to an upstream, or to the next one while none can be made;
// nil: to none.
func (se *session) connect() *upstream.Tunnel {
	ctx, stop := se.whileThere(dialGrace)
	defer stop()
	b := se.route.balancer
	if upstream := admission.UpstreamOf(se.hold.slot); upstream != "" {
		return se.connectAgreed(ctx, upstream)
	}
	var tried []*backend
	for u := b.pick(nil); u != nil; u = b.pick(tried) {
		se.rec.Retries = len(tried)
		if tunnel := se.dial(ctx, u); tunnel != nil || !se.rec.DialFailed {
			return tunnel
		}
		tried = append(tried, u)
	}
	if len(tried) == 0 {
		se.rec.Outcome = admission.UpstreamDown.Outcome()
	}
	return nil
}

// connectAgreed is connect for a slot that is for one upstream.
func (se *session) connectAgreed(ctx context.Context, to string) *upstream.Tunnel {
	b := se.route.balancer
	for tried := 0; ; {
		if !b.isBarred(to) {
			u := b.take(to)
			if u == nil {
				se.rec.Outcome = admission.UpstreamDown.Outcome()
				return nil
			}
			se.rec.Retries = tried
			if tunnel := se.dial(ctx, u); tunnel != nil || !se.rec.DialFailed {
				return tunnel
			}
			tried++
		}
		var err error
		if to, err = se.again(ctx, se.route.pool, se.route.pool.QueueTimeout); err != nil {
			if se.ctx.Err() == nil && !errors.Is(err, errLeft) {
				se.refused(make(http.Header), err)
			}
			return nil
		}
		se.hold.begin(se, se.snapshot.alarms)
	}
}

// dial opens a connection to u. Without one, rec.DialFailed tells whether u is at fault.
func (se *session) dial(ctx context.Context, u *backend) *upstream.Tunnel {
	b := se.route.balancer
	se.backend, se.rec.Upstream, se.rec.UpstreamURL, se.rec.DialFailed = u, u.name, &u.configured, false
	tunnel, err := u.client.Tunnel(ctx)
	if err == nil {
		b.settled(u, settlingAnswered)
		b.reached(u)
		se.rec.Outcome, se.failure = admission.OutcomeAdmitted, nil
		se.rec.NewConns++
		return tunnel
	}
	se.failure = err
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		if errors.Is(err, upstream.ErrLapsed) {
			se.hold.abort(errLost)
		}
		b.settled(u, se.gaveUp())
		b.done(u, verdictNone, nil)
		return nil
	}
	b.settled(u, settlingGaveUp)
	b.done(u, verdictFailed, err)
	se.rec.DialFailed, se.rec.Outcome = true, admission.OutcomeUpstreamError
	se.logFailure(context.Background())
	return nil
}

// finish records the session.
func (se *session) finish() {
	rec, cfg := &se.rec, &se.snapshot.cfg
	se.held()
	if cause := se.hold.aborted(); cause != nil {
		cause, rec.Aborted = cfg.said(cause), true
		cfg.Logger.Warn("connection broken off", slog.String("cause", cause.cause), slog.String("pool", rec.Pool),
			slog.String("upstream", rec.Upstream), slog.String("listener", se.info.Path), slog.Float64("hold_ms", milliseconds(rec.Hold)))
	}
	se.done()
	if cfg.AccessLog != AccessOff {
		se.snapshot.logAccess(context.Background(), &accessEntry{
			Record: rec, remote: se.conn.RemoteAddr().String(), client: se.info.Remote,
			method: "TCP", path: se.info.Path, proto: "TCP", failure: se.failure,
		})
	}
}
