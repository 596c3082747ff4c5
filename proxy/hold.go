package proxy

import (
	"cmp"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// abortCause is why an admitted request is aborted by the gateway: for the log
// and for the client.
type abortCause struct{ cause, detail string }

func (b *abortCause) Error() string { return "broken off: " + b.cause }

var (
	errLost = &abortCause{
		"the slot was lost",
		"the gateway lost touch with the others while this request was in flight; whether the upstream has acted on it is not known",
	}
	// errStops is what errLost is while the gateway stops: it ends what drain.timeout has not.
	errStops = &abortCause{
		"the gateway stops",
		"the gateway stops, and this request took longer than that may take; whether the upstream has acted on it is not known",
	}
	errHoldMax = &abortCause{
		"hold.max is reached",
		"the request took longer than its pool allows (hold.max)",
	}
	errMinUpload = &abortCause{
		"hold.min_upload is not reached",
		"the request's body comes more slowly than its pool allows (hold.min_upload)",
	}
	errMinDownload = &abortCause{
		"hold.min_download is not reached",
		"the answer is read more slowly than the request's pool allows (hold.min_download)",
	}
	// errStalled is for clients of routes without a pool.
	errStalled = &abortCause{
		"the client has stalled",
		"no byte of the request's body has come for too long",
	}
	errHoldIdle = &abortCause{
		"hold.idle is reached",
		"no byte has moved for longer than the request's pool allows (hold.idle)",
	}
)

// lastWord is how long a client may take to accept the answer that tells why
// its request was aborted. Its slot is held for as long. An HTTP/2 connection
// that takes nothing is closed as much later.
const lastWord = time.Second

// hold is the time in which a request has a slot: what ends it early, and how.
// A request without a pool has no slot, and is bound by limitStalls alone.
type hold struct {
	slot      Slot
	max, idle time.Duration // 0: no bound
	*moving                 // nil until it has a slot
	since     time.Time
	moved     atomic.Int64 // when a byte moved last, as time after since

	// user is whose request is cut off. It is called under mu, hence never after end: what it cuts
	// belongs to the server again when the request is over.
	user cutter

	mu    sync.Mutex
	alarm *alarm      // nil: there is no limit
	force *time.Timer // since the request was aborted; nil: nothing has to be forced
	cause *abortCause // set once, by what broke the request off
	over  bool
}

// moving is what a hold needs once bytes may move: those that wait do without.
type moving struct {
	upload, download clientRate
	down, up         transfer

	// client is the client's connection, if the kernel tells how far it has come. What
	// is written there may wait for minutes while the client reads it slowly: that is a
	// download that moves. Where the kernel does not tell, each write is timed.
	client progress
	// upstream is the same for what a slow upstream takes.
	upstream progress
}

// mayMove sees to it that h has what it needs, unless that was lent.
func (h *hold) mayMove() {
	if h.moving == nil {
		h.moving = new(moving)
	}
}

// limit sets the request's slot, and the pool's bounds on its time and its rate. end undoes
// it.
func (h *hold) limit(ctx pace.Done, slot Slot, pool *Pool) {
	h.mayMove()
	var down, up *pace.Pacer
	if s, ok := slot.(PacedSlot); ok {
		down, up = s.Pacers()
	}
	h.down.begin(ctx, down, pool.RequestRate)
	h.up.begin(ctx, up, pool.RequestRate)
	h.slot, h.max, h.idle = slot, pool.HoldMax, pool.HoldIdle
}

// limitRates sets how fast the client has to send and to read.
func (h *hold) limitRates(pool *Pool) {
	over := cmp.Or(pool.HoldIdle, defaultRateWindow)
	if pool.MinUpload > 0 {
		h.upload.over, h.upload.least = over, pool.MinUpload
	}
	if pool.MinDownload > 0 {
		h.download.over, h.download.least = over, pool.MinDownload
	}
}

// limitStalls sets how long a client of a route without a pool may leave the gateway
// waiting. An upstream may be silent for as long as it likes there.
func (h *hold) limitStalls(stall time.Duration) {
	h.upload.over, h.download.over = stall, stall
}

// LoseSlot implements admission.Holder.
func (h *hold) LoseSlot() { go h.abort(errLost) } // the caller has other slots to end

// cutter breaks its request off.
type cutter interface{ cut(cause *abortCause) }

// begin starts the watch. The slot may turn out to be lost already.
func (h *hold) begin(user cutter, alarms *alarms) {
	h.mu.Lock() // the slot's loss, or due, may run already
	defer h.mu.Unlock()
	h.since, h.user = time.Now(), user
	h.mayMove()
	if cause := h.cause; cause != nil {
		h.cause = nil
		h.abortLocked(cause)
		return
	}
	if _, next := h.judge(0); next > 0 {
		h.alarm = alarms.set(h, next)
	}
}

// end ends the watch: when it returns, nothing is cut any more.
func (h *hold) end() {
	h.down.stop()
	h.up.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.alarm != nil {
		h.alarm.giveBack()
		h.alarm = nil
	}
	if h.force != nil {
		h.force.Stop()
	}
}

// resume undoes end, for a slot that takes the place of the one before. Then begin starts the
// watch anew.
func (h *hold) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = false
	h.moved.Store(0)
}

// move notes that a byte has moved.
func (h *hold) move() {
	if h.idle > 0 {
		h.moved.Store(int64(time.Since(h.since)))
	}
}

// judge returns the limit that is reached now, a time after since, or else how
// much later the next one may be; 0 if there is none.
func (h *hold) judge(now time.Duration) (cause *abortCause, next time.Duration) {
	for _, rate := range [...]struct {
		*clientRate
		cause *abortCause
	}{{&h.upload, errMinUpload}, {&h.download, errMinDownload}} {
		slow, again := rate.judge(now)
		switch {
		case slow && rate.least == 0:
			return errStalled, 0
		case slow:
			return rate.cause, 0
		}
		if again > 0 && (next == 0 || again < next) {
			next = again
		}
	}
	for _, limit := range [...]struct {
		length, at time.Duration
		cause      *abortCause
	}{
		{h.max, h.max, errHoldMax},
		{h.idle, h.idle + time.Duration(h.moved.Load()), errHoldIdle},
	} {
		switch left := limit.at - now; {
		case limit.length == 0:
		case left <= 0:
			return limit.cause, 0
		case next == 0 || left < next:
			next = left
		}
	}
	if every := h.lookEvery(); every > 0 {
		next = min(next, every)
	}
	return nil, next
}

// lookEvery is the time between two looks at the connections; 0 if none is needed.
func (h *hold) lookEvery() time.Duration {
	if h.client.conn != nil && h.download.over > 0 {
		return h.download.over / 10
	}
	return h.idle / 4
}

// progress is how far the other side of a connection has come with what was written.
type progress struct {
	conn  net.Conn // nil: nothing is known
	acked uint64   // bytes that were acknowledged at the last look; 0: none yet
}

// look reports whether bytes have been acknowledged since the last look, and whether more
// are waiting.
func (p *progress) look() (moved, waiting bool) {
	if p.conn == nil {
		return false, false
	}
	acked, waiting := tcpstate.Acked(p.conn)
	moved = p.acked != 0 && acked != p.acked
	p.acked = acked
	return moved, waiting
}

// look notes whether the client or the upstream has acknowledged bytes since the last look.
func (h *hold) look(now time.Duration) {
	moved, waiting := h.client.look()
	taken, _ := h.upstream.look()
	if moved || taken {
		h.moved.Store(int64(now))
	}
	if h.client.conn != nil && h.download.over > 0 {
		h.download.sample(now, h.client.acked, waiting)
	}
}

// looksAt makes bytes that the upstream takes count as moved.
func (h *hold) looksAt(upstream net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upstream = progress{conn: upstream}
}

// taking notes that the client is to take a piece of the answer. The function that it
// returns notes that n bytes have been taken. Where the kernel tells more, look does it.
func (h *hold) taking() (taken func(n int)) {
	if h.moving == nil || h.download.over == 0 || h.client.conn != nil {
		return func(int) {}
	}
	h.download.begin(time.Since(h.since))
	return func(n int) { h.download.end(time.Since(h.since), n, false) }
}

// due is called by the alarm. Bytes that moved meanwhile have not touched it: it finds out here,
// and sets it again.
func (h *hold) due() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	now := time.Since(h.since)
	h.look(now)
	switch cause, next := h.judge(now); {
	case cause != nil:
		h.abortLocked(cause)
	case next > 0 && h.alarm != nil: // nil: the hold before has ended, and begin sets another one
		h.alarm.set(h, next)
	}
}

func (h *hold) abort(cause *abortCause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abortLocked(cause)
}

func (h *hold) abortLocked(cause *abortCause) {
	if h.over || h.cause != nil {
		return
	}
	h.cause = cause
	if h.user == nil {
		return // begin will
	}
	h.down.stop()
	h.up.stop()
	h.user.cut(cause)
}

// aborted returns why the request was; nil: it was not.
func (h *hold) aborted() *abortCause {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// check is called before anything is handed to the upstream, and before the upstream is blamed for
// a broken connection: when slots are lost, the first request that hears of it closes the connections
// of all. Whoever finds the slot lost first breaks the request off.
func (h *hold) check() error {
	if !h.isValid() {
		h.abort(errLost)
	}
	if cause := h.aborted(); cause != nil {
		return cause
	}
	return nil
}

// isValid reports whether the slot may be used.
func (h *hold) isValid() bool { return h.slot == nil || h.slot.Valid() }
