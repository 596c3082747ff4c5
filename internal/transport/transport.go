package transport

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/inbound"
	"github.com/kgate/kgate/kmutex"
)

// Peer is another gateway of the agreed view.
type Peer struct {
	Node kmutex.Node
	// Addr is the address of its peer port, host:port. Empty: it is not dialled.
	Addr string
	// Name of the gateway, by which its process is known.
	Name string
}

// Unsent is a message that has never left this gateway: it was never written to a
// connection.
type Unsent struct {
	To      kmutex.Node
	Pool    string
	Message kmutex.Message
}

// LinkStatus is the state of the link to a peer.
type LinkStatus struct {
	Node kmutex.Node
	Name string
	// Up: the link works, and long packets pass.
	Up bool
	// RTT is the smoothed round-trip time, 0 while it is unknown or the link is down.
	RTT time.Duration
}

// Transport is the peer port of one gateway, and its links. All methods may be
// called from several goroutines.
type Transport struct {
	config    Config
	listener  net.Listener
	addr      net.Addr
	tls       atomic.Pointer[tlsPair] // nil inside: plaintext
	secured   secured
	reviewing sync.Mutex // held during a review of secured
	refusals  *refusals
	halfOpen  *halfOpen
	open      *inbound.Places // connections that others have opened here

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	boot    string // of this process
	started time.Time
	numbers atomic.Uint64 // of the connections to other processes

	procs     sync.Mutex // guards processes
	processes map[string]*process

	mu     sync.Mutex // orders SetPeers and Close
	closed bool
	peers  atomic.Pointer[peerSet]
}

// peerSet is the last call of SetPeers. It does not change.
type peerSet struct {
	self  kmutex.Node
	links map[kmutex.Node]*link
}

// Listen opens the peer port. Until SetPeers, it refuses links.
func Listen(c Config) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	listener, err := c.network.Listen(context.Background(), "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	t := &Transport{
		config:    c,
		listener:  listener,
		addr:      listener.Addr(),
		refusals:  newRefusals(c.Observer, c.Logger),
		halfOpen:  newHalfOpen(c.maxHalfOpen),
		open:      inbound.NewPlaces(mostStreams, mostStreamsEach),
		boot:      rand.Text(),
		started:   time.Now(),
		processes: make(map[string]*process),
	}
	if c.Advertise != "" {
		if t.addr, err = advertised(c.Advertise, listener.Addr()); err != nil {
			_ = listener.Close()
			return nil, fmt.Errorf("%w: Advertise %q: %w", errConfig, c.Advertise, err)
		}
	}
	if c.TLS != nil {
		t.tls.Store(newTLSPair(c.TLS))
	}
	t.peers.Store(&peerSet{})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	t.wg.Go(t.beat)
	if c.TLS != nil {
		t.wg.Go(t.reviewSecured)
	}
	return t, nil
}

// keepAlive ends connections to lost machines. Links end them sooner, by their pings.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// Addr returns where peers reach this port.
func (t *Transport) Addr() net.Addr { return t.addr }

// SetPeers sets the members of the agreed view, and self, this gateway's number in it (0:
// none). It makes links to new peers, and drops links to peers that are gone with all that
// they had queued; it returns the messages that those peers cannot have received. Other
// links stay as they are; a new address counts from the next attempt to dial. If self has
// changed, all links are new. Peers that are self or 0 are ignored.
//
// SetPeers does not wait: a message of a dropped peer may still be being delivered when it
// returns, but no other follows.
func (t *Transport) SetPeers(self kmutex.Node, peers []Peer) []Unsent {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	old := t.peers.Load()
	set := &peerSet{self: self, links: make(map[kmutex.Node]*link, len(peers))}
	for _, p := range peers {
		if self == 0 || p.Node == 0 || p.Node == self || set.links[p.Node] != nil {
			continue
		}
		l := old.links[p.Node]
		if l == nil || old.self != self || l.p.name != p.Name {
			l = newLink(t.use(p.Name), self, p)
			l.serve(p.Addr)
		} else {
			l.move(p.Addr)
		}
		set.links[p.Node] = l
	}
	t.peers.Store(set)
	var unsent []Unsent
	for node, l := range old.links {
		if set.links[node] != l {
			unsent = append(unsent, l.drop()...)
		}
	}
	return unsent
}

// Send queues m for the peer and never blocks. It returns ErrUnknownPeer if
// the peer is not set, ErrClosed after Close, and another error if the peer's queue is
// full or m cannot be sent. The message is encoded before Send returns:
// m's slices are not kept.
//
// The link's own goroutine writes what is queued, after other goroutines that are ready
// have run: the messages that they send share a write.
func (t *Transport) Send(to kmutex.Node, pool string, m kmutex.Message) error {
	return t.send(to, pool, &m, false)
}

// SendNow is Send for a message that no other will follow soon. SendNow writes it itself,
// as far as the connection takes it without waiting, so no other goroutine has to wake up.
func (t *Transport) SendNow(to kmutex.Node, pool string, m kmutex.Message) error {
	return t.send(to, pool, &m, true)
}

func (t *Transport) send(to kmutex.Node, pool string, m *kmutex.Message, now bool) error {
	set := t.peers.Load()
	l := set.links[to]
	if l == nil {
		if t.ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("%w: node %d", ErrUnknownPeer, to)
	}
	return l.send(pool, m, now)
}

// MeanRTT returns the mean round-trip time to the peers whose links are up, or 0. It
// takes no lock.
func (t *Transport) MeanRTT() time.Duration {
	sum, n := int64(0), int64(0)
	for _, l := range t.peers.Load().links {
		if rtt := l.rtt.Load(); rtt > 0 {
			sum, n = sum+rtt, n+1
		}
	}
	return time.Duration(sum / max(1, n))
}

// Links returns the state of every link, by node.
func (t *Transport) Links() []LinkStatus {
	links := t.peers.Load().links
	all := make([]LinkStatus, 0, len(links))
	for _, node := range slices.Sorted(maps.Keys(links)) {
		all = append(all, links[node].status())
	}
	return all
}

// Close closes the port and all connections, and waits for the transport's goroutines; what is
// queued is dropped. It must not be called under a lock that Deliver takes.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.wg.Wait()
		return nil
	}
	t.closed = true
	t.cancel()
	err := t.listener.Close()
	t.halfOpen.close()
	old := t.peers.Swap(&peerSet{})
	for _, l := range old.links {
		l.drop()
	}
	for _, p := range t.all() {
		if s, _, _ := p.current(); s != nil {
			s.fail(ErrClosed)
		}
	}
	t.mu.Unlock()
	t.wg.Wait()
	return err
}
