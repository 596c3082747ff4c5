package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Why a call fails. The errors that are returned wrap these.
var (
	// ErrClosed says that the transport has been closed.
	ErrClosed = errors.New("closed")
	// ErrUnknownPeer says that a node is not among the peers last set. A node
	// is never a peer of itself.
	ErrUnknownPeer = errors.New("unknown peer")
	// ErrLinkDown says that there is no connection to the peer, or that it broke before the
	// answer. The peer may have taken what was sent nevertheless.
	ErrLinkDown = errors.New("link down")
	// errFailed says that the other gateway has answered a call with an error.
	errFailed = errors.New("the other gateway refuses")
	// ErrUnknownCall says that a gateway answers no calls of that name.
	ErrUnknownCall = errors.New("unknown call")
	// errMessage says that a message cannot be put on the wire.
	errMessage = errors.New("bad message")
	// errRefused says that the other end refused a connection.
	errRefused = errors.New("refused by peer")
	// errConfig says that a Config cannot be used.
	errConfig = errors.New("bad configuration")
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

// Cause says why a connection, a frame or a message was refused. There are only these, so
// a metric can use it as a label.
type Cause string

// The causes.
const (
	// CauseIncomplete: closed before its preamble was complete, by the other end (port
	// scans, health checks of a load balancer) or by this one as it stops.
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
	// CauseKind: an unknown kind of connection.
	CauseKind Cause = "unknown_kind"
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
	// CauseNode: the other end looks for another gateway, or has this one's name. Expected for
	// a moment when a gateway moves.
	CauseNode Cause = "unknown_node"
	// CauseDirection: the other end has dialled, and there is a connection. Expected for a
	// moment when both ends dial.
	CauseDirection Cause = "wrong_direction"
	// CauseSequence: the two ends of a link disagree on what was received, because one has
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
	// Name is this gateway's. Required, 1 to 128 bytes. Over TLS the certificate must have it.
	Name string
	// Listen is the TCP address of the peer port. Default: a free port on all
	// addresses.
	Listen string
	// Advertise is what Addr reports, host:port, where peers reach this port.
	// A missing or zero port is taken from the listener. Default: the
	// listener's own address.
	Advertise string

	// TLS, if set, makes every connection mutual TLS 1.3. It needs RootCAs, the authorities
	// whose certificates make a peer (ClientCAs are ignored), and Certificates, or
	// GetCertificate and GetClientCertificate. A certificate must be valid for servers and
	// clients, and must have the name of its gateway; addresses do not count. VerifyConnection may require more. All of it is checked again when SetTLS
	// is called, and when the certificate ends.
	TLS *tls.Config

	// Handler takes the messages that arrive. Required. It is not called
	// before the first SetPeers.
	Handler Handler
	// Datagram takes what others have sent with Send. It must not block, and must not keep
	// the data. Default: it is dropped.
	Datagram func(ch wire.Channel, from Caller, data []byte)
	// Answer answers a call of another gateway. Ctx ends when nobody waits for the answer any
	// more. Calls come at the same time, up to 272 from one gateway, those of connections that
	// have ended included. An error is passed on in words; [ErrUnknownCall] says that there are
	// no calls of that name. Default: there are none.
	Answer func(ctx context.Context, from Caller, name string, body []byte) ([]byte, error)
	// Changed is told when a connection to another process comes or goes. It
	// must not block or call the transport. Default: nobody is told.
	Changed func(Change)
	// Receive takes a payload that a peer has sent with SendPayload, and keeps it. For each
	// peer it is called by one goroutine at a time. While it runs, the peer's later
	// payloads wait, but not its messages. An error is counted, unless it is
	// [ErrNotYet], and reported to the peer.
	// Default: every payload is refused.
	Receive func(from kmutex.Node, topic string, payload []byte) error
	// Observer counts what happens. Default: none.
	Observer Observer
	// Logger gets links that come and go, and what was refused.
	// Default: none.
	Logger *slog.Logger

	// PingInterval is how long a connection goes without a byte before it sends a ping. One on
	// which nothing arrives for 3/2 of it is closed, or for one of it if something is owed;
	// either may take a sixth longer. After a third of it in which something was owed the other
	// end is suspect. Half a lease. Default 1 s.
	PingInterval time.Duration

	limits
}

// limits of a Transport. Only tests set them.
type limits struct {
	// queueMessages and queueBytes are what may wait for one peer, sent but unacknowledged
	// messages included.
	queueMessages, queueBytes int
	maxHalfOpen               int           // accepted connections that may be without a preamble
	handshakeTimeout          time.Duration // of an accepted connection, for TLS and its preamble
	dialTimeout               time.Duration // of one attempt to connect, and of a call's wait for it
	// backoffMin and backoffMax are the first and the longest pause between attempts. It
	// doubles while they fail, and is jittered by half.
	backoffMin, backoffMax time.Duration
	// slow returns what a session writes to in place of its connection.
	slow func(*session) io.Writer
	// network is what connections are made over. Default: the system's.
	network network
}

// network makes connections, as package net does.
type network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// system is the system's network.
type system struct {
	net.ListenConfig
	net.Dialer
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, ":0")
	c.PingInterval = cmp.Or(c.PingInterval, time.Second)
	c.queueMessages, c.queueBytes = cmp.Or(c.queueMessages, 1<<16), cmp.Or(c.queueBytes, 32<<20)
	c.maxHalfOpen = cmp.Or(c.maxHalfOpen, 128)
	c.handshakeTimeout, c.dialTimeout = cmp.Or(c.handshakeTimeout, 5*time.Second), cmp.Or(c.dialTimeout, 2*time.Second)
	c.backoffMin = cmp.Or(c.backoffMin, 10*time.Millisecond)
	c.backoffMax = cmp.Or(c.backoffMax, max(time.Second, c.backoffMin))
	if c.network == nil {
		c.network = &system{net.ListenConfig{KeepAliveConfig: keepAlive}, net.Dialer{KeepAliveConfig: keepAlive}}
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c. It has no side effects.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" || len(c.Name) > 128 {
		errs = append(errs, fmt.Errorf("%w: Name has %d bytes, not 1 to 128", errConfig, len(c.Name)))
	}
	if c.Handler == nil {
		errs = append(errs, fmt.Errorf("%w: Handler is missing", errConfig))
	}
	if c.PingInterval < 0 {
		errs = append(errs, fmt.Errorf("%w: PingInterval is %v: use a positive duration, or 0 for the default", errConfig, c.PingInterval))
	}
	if c.Advertise != "" {
		if _, err := advertised(c.Advertise, &net.TCPAddr{Port: 1}); err != nil {
			errs = append(errs, fmt.Errorf("%w: Advertise %q: %w", errConfig, c.Advertise, err))
		}
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

// advertisedAddr is an address as configured; its host may be a name.
type advertisedAddr string

func (advertisedAddr) Network() string  { return "tcp" }
func (a advertisedAddr) String() string { return string(a) }

// advertised completes a configured address by the listener's port.
func advertised(address string, listener net.Addr) (net.Addr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port, err = net.SplitHostPort(net.JoinHostPort(address, "0"))
	}
	if err != nil {
		return nil, err
	}
	if host == "" {
		return nil, fmt.Errorf("no host")
	}
	if port == "" || port == "0" {
		if _, port, err = net.SplitHostPort(listener.String()); err != nil {
			return nil, err
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return advertisedAddr(net.JoinHostPort(host, port)), nil
}
