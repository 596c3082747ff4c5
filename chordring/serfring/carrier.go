package serfring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
)

const (
	// Question is the name of the calls that [Carrier.Answer] answers.
	Question = "gossip"
	// mostAsked is how many questions may wait for memberlist, and mostState how long an answer may be,
	// in bytes.
	mostAsked = 16
	mostState = 4 << 20
	// mostPackets is how many packets may wait for memberlist.
	mostPackets = 256
)

// Carrier takes gossip off the connections between gateways, and puts it there, for memberlist.
// The zero value is not usable; see [NewCarrier]. Datagram and Answer may be called before [Start].
type Carrier struct {
	links   *transport.Transport
	self    string
	ip      net.IP
	port    int
	packets chan *memberlist.Packet
	streams chan net.Conn
	stop    chan struct{}
	ended   sync.Once
	dialing context.Context // ends when the agent begins to end
	hangUp  context.CancelFunc
}

var _ memberlist.NodeAwareTransport = (*Carrier)(nil)

// NewCarrier returns a Carrier for one agent.
func NewCarrier() *Carrier {
	c := &Carrier{
		packets: make(chan *memberlist.Packet, mostPackets), streams: make(chan net.Conn, mostAsked), stop: make(chan struct{}),
	}
	c.dialing, c.hangUp = context.WithCancel(context.Background())
	return c
}

// Datagram takes in a packet of gossip; others it ignores. It never blocks: what does not fit is
// dropped, as memberlist expects of a network.
func (c *Carrier) Datagram(ch wire.Channel, from transport.Caller, data []byte) {
	if ch != wire.Gossip {
		return
	}
	packet := &memberlist.Packet{Buf: append([]byte(nil), data...), From: sender(from.Name), Timestamp: time.Now()}
	select {
	case c.packets <- packet:
	default:
	}
}

// Answer has memberlist answer a question of another one, and returns the answer.
func (c *Carrier) Answer(ctx context.Context, from transport.Caller, question []byte) ([]byte, error) {
	e := &exchange{with: sender(from.Name), in: bytes.NewReader(question), over: make(chan struct{})}
	select {
	case c.streams <- e:
	case <-c.stop:
		return nil, errClosed
	default:
		return nil, errBusy
	}
	select {
	case <-e.over:
		return e.out.Bytes(), nil
	case <-c.stop:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errBusy is the answer while too many wait for one.
var errBusy = errors.New("too many ask")

// exchange is a question and its answer, for memberlist a connection: it writes one and reads the other.
type exchange struct {
	with sender
	ask  func(until time.Time, question []byte) ([]byte, error) // nil: the question has come
	in   *bytes.Reader
	out  bytes.Buffer
	end  time.Time
	over chan struct{} // closed by Close
}

var _ net.Conn = (*exchange)(nil)

// Read implements net.Conn. The first one asks.
func (e *exchange) Read(b []byte) (int, error) {
	if e.in == nil {
		answer, err := e.ask(e.end, e.out.Bytes())
		if err != nil {
			return 0, err
		}
		e.in = bytes.NewReader(answer)
	}
	return e.in.Read(b)
}

// Write implements net.Conn.
func (e *exchange) Write(b []byte) (int, error) { return e.out.Write(b) }

// Close implements net.Conn. Memberlist calls it once.
func (e *exchange) Close() error {
	close(e.over)
	return nil
}

// LocalAddr implements net.Conn.
func (e *exchange) LocalAddr() net.Addr { return sender("") }

// RemoteAddr implements net.Conn.
func (e *exchange) RemoteAddr() net.Addr { return e.with }

// SetDeadline implements net.Conn.
func (e *exchange) SetDeadline(end time.Time) error {
	e.end = end
	return nil
}

// SetReadDeadline implements net.Conn.
func (e *exchange) SetReadDeadline(end time.Time) error { return e.SetDeadline(end) }

// SetWriteDeadline implements net.Conn. Nothing that is written waits.
func (e *exchange) SetWriteDeadline(time.Time) error { return nil }

// sender is the name of a gateway, where memberlist logs an address.
type sender string

func (sender) Network() string  { return "gateway" }
func (s sender) String() string { return string(s) }

// FinalAdvertiseAddr implements memberlist.Transport. It returns the address of the peer port.
func (c *Carrier) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return c.ip, c.port, nil }

// WriteTo implements memberlist.Transport. A packet to nobody in particular is dropped.
func (c *Carrier) WriteTo(b []byte, addr string) (time.Time, error) {
	return c.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport. It drops what it cannot send, without
// an error: memberlist notices by itself who does not answer.
func (c *Carrier) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if a.Name != "" && c.believes(a) {
		_ = c.links.SendDatagram(transport.To{Name: a.Name, Addr: a.Addr}, wire.Gossip, b)
	}
	return time.Now(), nil
}

// DialTimeout implements memberlist.Transport.
func (c *Carrier) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return c.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. An address of a join list has no
// name: first it asks who is there. Whether somebody answers shows when memberlist reads.
func (c *Carrier) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to := transport.To{Name: a.Name, Addr: a.Addr}
	if a.Name == "" {
		ctx, cancel := context.WithTimeout(c.dialing, timeout)
		defer cancel()
		var err error
		if to, err = c.links.Meet(ctx, a.Addr); err != nil {
			return nil, err
		}
		if to.Name == c.self && to.Addr != c.links.Addr().String() {
			return nil, fmt.Errorf("%s: it is at %s", duplicateName, to.Addr)
		}
	} else if !c.believes(a) {
		return nil, fmt.Errorf("%s is not at %s", a.Name, a.Addr)
	}
	return &exchange{with: sender(to.Name), over: make(chan struct{}), ask: func(until time.Time, question []byte) ([]byte, error) {
		ctx, cancel := context.WithDeadline(c.dialing, until)
		defer cancel()
		if to.Name == c.self {
			return c.Answer(ctx, transport.Caller{Name: c.self}, question)
		}
		return c.links.Call(ctx, to, transport.Question{Name: Question, Body: question, InTurn: true, Limit: mostState})
	}}, nil
}

// believes reports whether a gateway may be where gossip says: it is not if it has said otherwise
// itself, on a connection that is open.
func (c *Carrier) believes(a memberlist.Address) bool {
	proved, ok := c.links.Proved(a.Name)
	return !ok || proved == a.Addr
}

// PacketCh implements memberlist.Transport.
func (c *Carrier) PacketCh() <-chan *memberlist.Packet { return c.packets }

// StreamCh implements memberlist.Transport.
func (c *Carrier) StreamCh() <-chan net.Conn { return c.streams }

// Shutdown implements memberlist.Transport. The connections are not gossip's to close.
func (c *Carrier) Shutdown() error {
	c.ended.Do(func() { close(c.stop) })
	return nil
}

// mostMembers bounds the names that gossip can make this gateway remember.
const mostMembers = 10_000

// newcomers judges what gossip says of a gateway, before anything is made of it.
type newcomers Agent

var _ memberlist.AliveDelegate = (*newcomers)(nil)

// NotifyAlive implements memberlist.AliveDelegate.
func (n *newcomers) NotifyAlive(peer *memberlist.Node) error {
	at := endpointOf(peer.Addr, peer.Port)
	n.mu.Lock()
	_, known := n.members[peer.Name]
	full := len(n.members) >= mostMembers
	n.mu.Unlock()
	switch {
	case !known && full || len(peer.Name) > 128:
		return fmt.Errorf("a name of %d bytes beside %d others", len(peer.Name), mostMembers)
	case peer.Name != n.config.Name && !n.config.Carrier.believes(memberlist.Address{Name: peer.Name, Addr: at}):
		return fmt.Errorf("it is not at %s", at)
	}
	return nil
}

// The kinds of serf's messages that a gateway takes.
const (
	kindLeave = 0
	kindJoin  = 1
)

// filter passes serf's messages about members that join and leave. Serf does more for whoever
// asks: it keeps events, and sends what it is given to any member (relays).
type filter struct{ memberlist.Delegate }

// NotifyMsg implements memberlist.Delegate.
func (f filter) NotifyMsg(message []byte) {
	if len(message) > 0 && (message[0] == kindLeave || message[0] == kindJoin) {
		f.Delegate.NotifyMsg(message)
	}
}
