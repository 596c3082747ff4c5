package serfring

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
)

const (
	streamName = "gossip"
	// mostStreams is how many states are taken in at once, and mostState how long one may be, in
	// bytes.
	mostStreams = 16
	mostState   = 4 << 20
	// mostPackets is how many packets may wait for memberlist.
	mostPackets = 256
)

// Carrier takes gossip off the connections between gateways, and puts it there, for memberlist.
// The zero value is not usable; see [NewCarrier]. Datagram and Accept may be called before [Start].
type Carrier struct {
	links   *transport.Transport
	self    string
	ip      net.IP
	port    int
	packets chan *memberlist.Packet
	streams chan net.Conn
	places  chan struct{}
	stop    chan struct{}
	ended   sync.Once
	dialing context.Context // ends when the agent begins to end
	hangUp  context.CancelFunc
}

var _ memberlist.NodeAwareTransport = (*Carrier)(nil)

// NewCarrier returns a Carrier for one agent.
func NewCarrier() *Carrier {
	c := &Carrier{
		packets: make(chan *memberlist.Packet, mostPackets), streams: make(chan net.Conn, mostStreams),
		places: make(chan struct{}, mostStreams), stop: make(chan struct{}),
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

// Accept takes a stream of gossip; false if it is of something else, or if there are too many.
func (c *Carrier) Accept(_ transport.Caller, name string, conn net.Conn) bool {
	return name == streamName && c.take(conn)
}

func (c *Carrier) take(conn net.Conn) bool {
	select {
	case <-c.stop:
		return false
	case c.places <- struct{}{}:
	default:
		return false
	}
	c.streams <- &stream{Conn: conn, in: io.LimitReader(conn, mostState), leave: sync.OnceFunc(func() { <-c.places })} // there is room: it has a place
	return true
}

// stream holds its place until it is closed.
type stream struct {
	net.Conn
	in    io.Reader
	leave func()
}

func (s *stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// Close implements net.Conn.
func (s *stream) Close() error {
	s.leave()
	return s.Conn.Close()
}

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
// name: first it asks who is there.
func (c *Carrier) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.dialing, timeout)
	defer cancel()
	to := transport.To{Name: a.Name, Addr: a.Addr}
	if a.Name == "" {
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
	if to.Name == c.self {
		near, far := net.Pipe()
		if !c.take(far) {
			return nil, errClosed
		}
		return near, nil
	}
	return c.links.Open(ctx, to, streamName)
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
	c.ended.Do(func() {
		close(c.stop)
		for {
			select {
			case conn := <-c.streams:
				_ = conn.Close() // never fails
			default:
				return
			}
		}
	})
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
