package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Links carry the machines' messages to other gateways. [transport.Transport]
// implements it.
type Links interface {
	// SetPeers says who takes part. It returns what those that do so no longer
	// cannot have received.
	SetPeers(self kmutex.Node, peers []transport.Peer) []transport.Unsent
	// Send queues a message and never blocks. It is written soon, with others that
	// are queued by then.
	Send(to kmutex.Node, pool string, m kmutex.Message) error
	// SendNow is Send for a message that no other will follow soon: it is written at once.
	SendNow(to kmutex.Node, pool string, m kmutex.Message) error
	// SendPayload sends bytes to a peer over the existing link, and waits until
	// the peer's [Gateway.ReceivePayload] has returned.
	SendPayload(ctx context.Context, to kmutex.Node, topic string, payload []byte) error
	// Call asks another gateway, and waits for its [Gateway.Answer].
	Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error)
	// SendDatagram sends what another gateway's [Gateway.Datagram] takes, or drops it. It never blocks.
	SendDatagram(to transport.To, ch wire.Channel, data []byte) error
	// MeanRTT is the mean round trip to the peers; 0 while none is known.
	MeanRTT() time.Duration
}

// Views tell what the gateways have agreed on. [membership.Cluster] implements
// it.
type Views interface {
	// View returns the newest agreed view.
	View() *membership.View
	// Standing says as which incarnation, and until when, this gateway may have
	// requests in flight. It is asked on every admission.
	Standing() membership.Standing
	// Changed returns a channel that is closed when the view has changed, or a
	// standing has begun or is lost.
	Changed() <-chan struct{}
	// Rejoin lets the gateway come back as a new incarnation, after everything
	// of the one before is void.
	Rejoin()
	// Recover begins a new epoch of a pool, if it is still in the given one.
	Recover(ctx context.Context, pool string, epoch uint64, why membership.Why) error
	// UseTickets makes the view say that a pool has tickets of a time to live of up to ttl.
	UseTickets(ctx context.Context, pool string, ttl time.Duration) error
	// TicketsMark returns what SetTicketsMark has written to DataDir, empty if nothing.
	TicketsMark() string
	// SetTicketsMark writes the mark of the tickets that are kept in DataDir.
	SetTicketsMark(mark string) error
}

// Observer counts what the machines do, for metrics.
type Observer interface {
	// Pool returns who watches the named pool; asked again after a lease was lost.
	Pool(name string) PoolObserver
	// LeaseLost counts that this gateway has lost its lease, and all that it had
	// in flight.
	LeaseLost()
	// TicketsWritten reports how long it took to write tickets to DataDir.
	TicketsWritten(took time.Duration)
}

// PoolObserver watches one pool. Its methods are called under the pool's lock:
// they must be quick and must not call back.
type PoolObserver interface {
	// Moved reports one trace event of the machine.
	Moved(t kmutex.Trace)
	// Sent and Received count messages.
	Sent(kind kmutex.Kind)
	Received(kind kmutex.Kind)
	// Recovered reports that an epoch has begun here, and how long requests had
	// to wait for it.
	Recovered(why Reason, took time.Duration)
	// Overtaken counts a request that was admitted after one which had arrived
	// at this gateway later.
	Overtaken()
	// AuditFailed counts that home found tokens lost or doubled.
	AuditFailed()
	// Slots reports how many slots are in use at this gateway from now on.
	Slots(now time.Time, inUse int)
}

// Reason says why a pool entered a new epoch.
type Reason string

// The reasons.
const (
	ReasonLoss   Reason = "loss"   // a gateway was lost
	ReasonReturn Reason = "return" // what a lost one may have held is free again
	ReasonK      Reason = "k"      // k was changed
	ReasonRate   Reason = "rate"   // the rate was changed
	ReasonLeave  Reason = "leave"  // a gateway left in order
	ReasonSpread Reason = "spread" // nobody waited, and one gateway had most of the free tokens
	// ReasonSeveral: this gateway has learned of several epochs at once.
	ReasonSeveral Reason = "several"
	// ReasonRepair: the pool's home has asked for it, since an audit found tokens lost or doubled, or
	// a message was lost.
	ReasonRepair Reason = "repair"
)

// Config of a Gateway.
type Config struct {
	// Pools by name. A pool of the cluster that is not named here takes part in
	// its line with the defaults: this gateway may be its home.
	Pools map[string]PoolConfig
	// DataDir keeps tickets over a restart; empty: in memory only.
	DataDir string
	// Suspect is called with an upstream that has a k of its own and that another gateway could
	// not reach. Nil: nobody wants to know.
	Suspect func(pool, upstream string)
	// Observer of the machines. It must not be nil.
	Observer Observer
	// Logger; nil: silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// PoolConfig is what this gateway alone decides about a pool. Package kgate has checked it.
type PoolConfig struct {
	// QueueLimit bounds the requests that wait at this gateway. Default 10000.
	QueueLimit int
	// ClientLimit bounds those of them that one client has; 0: it does not.
	ClientLimit int
	// ClientInFlight bounds how many slots one client has at a time at this gateway,
	// those of its tickets included; its other requests wait. 0: it does not.
	ClientInFlight int
	// ClientTickets bounds how many tickets one client has at a time at this
	// gateway, waiting or with a slot; 0: it does not.
	ClientTickets int
	// TicketTTL is the longest time to live of a ticket that is taken here. Default
	// [admission.DefaultTicketTTL].
	TicketTTL time.Duration
	// Fair gives clients equal shares of the slots, in time, over all gateways. Otherwise
	// requests come in as they arrived.
	Fair bool
	// Weights are the shares of clients in that order, by name; 1 for those that have none.
	Weights map[string]float64
}
