package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Why a call fails. The errors that are returned wrap these.
var (
	// ErrClosed says that the transport, or the stream, has been closed.
	ErrClosed = errors.New("transport: closed")
	// ErrUnknownPeer says that a node is not among the peers last set. A node
	// is never a peer of itself.
	ErrUnknownPeer = errors.New("transport: unknown peer")
	// errOverflow says that a peer's queue is full; the message was not taken.
	// A message that is not taken is lost to the algorithm: the epoch needs
	// recovery.
	errOverflow = errors.New("transport: queue full")
	// errMessage says that a message cannot be put on the wire.
	errMessage = errors.New("transport: bad message")
	// errRefused says that the other end refused a connection, and why.
	errRefused = errors.New("transport: refused by peer")
	// errConfig says that a Config cannot be used, and why.
	errConfig = errors.New("transport: bad configuration")
)

// Handler takes the messages that arrive.
type Handler interface {
	// Deliver takes one message. For each sender it is called by one goroutine
	// at a time, in the order of sending; for several senders at once. It may
	// call Send and SetPeers, and may take a lock under which others do. While
	// it blocks, the sender's later messages wait. An error (unknown pool,
	// say) is counted, logged once per cause and minute, and changes nothing
	// else: the message counts as delivered.
	Deliver(from kmutex.Node, pool string, m kmutex.Message) error
}

// Observer counts what happens, for metrics. Its methods are called from several
// goroutines, some under locks: they must be quick and must not call back.
type Observer interface {
	// Batch reports how many messages went out with one write; 0 if it had
	// acknowledgements and pings only.
	Batch(messages int)
	// Refused counts what was not accepted.
	Refused(cause Cause)
}

// Cause says why something was refused: a connection, a frame, a message. The
// set is closed, so that a metric can use it as a label.
type Cause string

// The causes.
const (
	// CauseIncomplete: closed by the other end before its preamble was over
	// (port scans, health checks of a load balancer), or by this one as it stops.
	CauseIncomplete Cause = "incomplete"
	// CauseSlow: the preamble was not complete in time.
	CauseSlow Cause = "slow_preamble"
	// CauseHalfOpen: too many connections without a preamble; the oldest of
	// them was closed.
	CauseHalfOpen Cause = "too_many_half_open"
	// CauseMagic: the first bytes are not from a kgate.
	CauseMagic Cause = "foreign_magic"
	// CauseVersion: a kgate that speaks another version of this protocol.
	CauseVersion Cause = "foreign_version"
	// CauseKind: an unknown kind of stream, or one that nobody accepts here.
	CauseKind Cause = "unknown_kind"
	// CauseBacklog: nobody accepted the streams that were waiting already.
	CauseBacklog Cause = "backlog_full"
	// CauseStreams: the other end, or all others together, have too many streams open.
	CauseStreams Cause = "too_many_streams"
	// CausePlaintext: plaintext on a TLS port.
	CausePlaintext Cause = "plaintext_on_tls_port"
	// CauseTLS: TLS on a plaintext port.
	CauseTLS Cause = "tls_on_plaintext_port"
	// CauseCertificate: no certificate, or one of another authority.
	CauseCertificate Cause = "certificate"
	// CauseHandshake: the TLS handshake failed for another reason.
	CauseHandshake Cause = "tls_handshake"
	// CauseNode: a link that names its own or our end by a number that is not
	// in our set. Expected for a moment when views arrive at different times.
	CauseNode Cause = "unknown_node"
	// CauseDirection: a link that has a connection was dialled by the higher of
	// its two nodes, or again by the lower one while the messages of the connection
	// before are still being taken in. Expected for a moment when both ends dial.
	CauseDirection Cause = "wrong_direction"
	// CauseSequence: the two ends disagree on what has been received: one has
	// forgotten the other. The link stays down until the view changes.
	CauseSequence Cause = "sequence"
	// CauseFrame: a frame that cannot be decoded.
	CauseFrame Cause = "bad_frame"
	// CauseOversized: a frame above the limit.
	CauseOversized Cause = "oversized_frame"
	// CauseProtocol: a frame that is well-formed, but not now; or a hello that names no
	// two gateways.
	CauseProtocol Cause = "protocol"
	// CauseHandler: the handler returned an error for a message.
	CauseHandler Cause = "handler"
	// CauseOverflow: Send found a peer's queue full.
	CauseOverflow Cause = "queue_full"
)

// Config says how a Transport works. The zero value of every field but Handler
// is usable.
type Config struct {
	// Listen is the TCP address of the peer port. Default: a free port on all
	// addresses.
	Listen string
	// Advertise is what Addr reports, host:port, where peers reach this port.
	// A missing or zero port is taken from the listener. Default: the
	// listener's own address.
	Advertise string

	// TLS, if set, makes every connection mutual TLS 1.3. It needs RootCAs, the
	// authorities that decide who is a peer (ClientCAs are ignored), and
	// Certificates, or GetCertificate and GetClientCertificate. A certificate
	// must be good for servers and clients. On a link it must have the name of
	// the peer in the agreed view; addresses do not count. VerifyConnection may
	// ask for more. All of it is checked again when SetTLS is called, and when
	// the certificate ends.
	TLS *tls.Config

	// Handler takes the messages that arrive. Required. It is not called
	// before the first SetPeers.
	Handler Handler
	// Receive takes a payload that a peer has sent with SendPayload, and keeps
	// it. For each peer it is called by one goroutine at a time; while it runs,
	// the peer's later payloads wait, but not its messages, and a broken link
	// does not come up again. So it should leave long work to others. An error
	// is counted, and the peer learns that there was one. Default: every payload
	// is refused.
	Receive func(from kmutex.Node, topic string, payload []byte) error
	// Observer counts. Default: none.
	Observer Observer
	// Logger gets links that come and go, and what was refused.
	// Default: none.
	Logger *slog.Logger

	// QueueMessages and QueueBytes bound what waits for one peer, sent but
	// unacknowledged messages included. Defaults: 65,536 and 32 MiB.
	QueueMessages int
	QueueBytes    int
	// Backlog bounds how many streams of one kind wait for Accept. Default 64.
	Backlog int
	// MaxHalfOpen bounds how many accepted connections may be without a
	// preamble. Default 128.
	MaxHalfOpen int
	// HandshakeTimeout bounds how long an accepted connection may take for TLS
	// and its preamble. Default 5 s.
	HandshakeTimeout time.Duration
	// DialTimeout bounds one attempt to bring a link up. Default 2 s.
	DialTimeout time.Duration
	// BackoffMin and BackoffMax bound the delay between attempts; it doubles
	// from one to the other while they fail, and is jittered by half. Defaults
	// 10 ms and 1 s.
	BackoffMin, BackoffMax time.Duration
	// PingInterval is after how long without a byte from its peer a link sends a
	// ping. A connection on which nothing arrives for 3/2 of it is closed, with an
	// acknowledgement outstanding after one; either may take a quarter longer.
	// Default 1 s.
	PingInterval time.Duration

	// Delay, if set, is how long what from sends to to is held back. For
	// tests: it imitates a slow network, order is kept. From is this node.
	Delay func(from, to kmutex.Node) time.Duration
}

func (c Config) withDefaults() Config {
	setDefault(&c.Listen, ":0")
	setDefault(&c.QueueMessages, 1<<16)
	setDefault(&c.QueueBytes, 32<<20)
	setDefault(&c.Backlog, 64)
	setDefault(&c.MaxHalfOpen, 128)
	setDefault(&c.HandshakeTimeout, 5*time.Second)
	setDefault(&c.DialTimeout, 2*time.Second)
	setDefault(&c.BackoffMin, 10*time.Millisecond)
	setDefault(&c.BackoffMax, max(time.Second, c.BackoffMin))
	setDefault(&c.PingInterval, time.Second)
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports everything that is wrong with c. It has no side effects.
func (c Config) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
		}
	}
	bad(c.Handler == nil, "Handler is missing")
	bad(c.QueueMessages < 0, "QueueMessages is %d: use a positive number, or 0 for the default", c.QueueMessages)
	bad(c.QueueBytes < 0, "QueueBytes is %d: use a positive number, or 0 for the default", c.QueueBytes)
	bad(c.Backlog < 0, "Backlog is %d: use a positive number, or 0 for the default", c.Backlog)
	bad(c.MaxHalfOpen < 0, "MaxHalfOpen is %d: use a positive number, or 0 for the default", c.MaxHalfOpen)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"HandshakeTimeout", c.HandshakeTimeout},
		{"DialTimeout", c.DialTimeout},
		{"BackoffMin", c.BackoffMin},
		{"BackoffMax", c.BackoffMax},
		{"PingInterval", c.PingInterval},
	} {
		bad(d.value < 0, "%s is %v: use a positive duration, or 0 for the default", d.name, d.value)
	}
	bad(c.BackoffMax > 0 && c.BackoffMax < c.BackoffMin, "BackoffMax %v is below BackoffMin %v", c.BackoffMax, c.BackoffMin)
	if c.Advertise != "" {
		_, err := advertised(c.Advertise, &net.TCPAddr{Port: 1})
		bad(err != nil, "Advertise %q: %v", c.Advertise, err)
	}
	if c.TLS != nil {
		errs = append(errs, validateTLS(c.TLS))
	}
	return errors.Join(errs...)
}

type noObserver struct{}

var _ Observer = noObserver{}

func (noObserver) Batch(int)     {}
func (noObserver) Refused(Cause) {}
