package serfring

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/kgate/kgate/internal/inbound"
	"github.com/kgate/kgate/internal/oncelog"
)

// Memberlist takes in 20 MB from everybody who connects, with a key, too, since it
// decrypts when it has all of it; in the clear, a few bytes make it allocate for a
// million members. So a guard stands before it: it reads how long a message will be,
// lets only so many in at once, from one address and in all, and ends those that say
// nothing.
const (
	// smallStream is what the state of some hundred gateways takes, in bytes;
	// mostStream is the longest message at all.
	smallStream = 64 << 10
	mostStream  = 4 << 20
	// mostMembers bounds the names that gossip can make this gateway remember, and
	// mostMeta what it remembers of each. One that has become no member may go after
	// forgetAfter, when memberlist has forgotten it.
	mostMembers = 10_000
	mostMeta    = memberlist.MetaMaxSize
	forgetAfter = time.Minute
	// streamHeader is how long a connection may take to say how long its message is, and
	// mostPrefix is longer than every header that says so.
	streamHeader = time.Second
	mostPrefix   = 256
)

// errStream means that a gossip connection was refused.
var errStream = errors.New("serfring: gossip connection refused")

// The kinds of memberlist's messages that the guard tells apart.
const (
	kindPing     = 0
	kindPushPull = 6
	kindCompound = 7
	kindCompress = 9
	kindEncrypt  = 10
	kindCRC      = 12
)

// guard is a memberlist.Transport that passes on what is bounded.
type guard struct {
	*memberlist.NetTransport
	keyed  bool
	logger *slog.Logger
	once   oncelog.Limit
	// starting is called when memberlist's configuration is complete, before anything runs
	// and anything is taken in.
	starting func()

	// silent have not said yet how long their message is.
	silent, small, large *inbound.Places

	streams chan net.Conn
	packets chan *memberlist.Packet
	stop    chan struct{}
	ended   sync.Once
	wg      sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*guard)(nil)

// newGuard listens on host and port, UDP and TCP; port 0 means one that is free.
func newGuard(host string, port int, keyed bool, logger *slog.Logger, legacy *log.Logger) (*guard, error) {
	var err error
	g := &guard{
		keyed: keyed, logger: logger,
		silent: inbound.NewPlaces(256, 64), small: inbound.NewPlaces(64, 32), large: inbound.NewPlaces(4, 2),
		streams: make(chan net.Conn), packets: make(chan *memberlist.Packet), stop: make(chan struct{}),
	}
	// A port that is free for TCP may not be for UDP.
	for range 10 {
		g.NetTransport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: legacy})
		if err == nil || port != 0 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBind, err)
	}
	g.wg.Go(g.passStreams)
	g.wg.Go(g.passPackets)
	return g, nil
}

// StreamCh implements memberlist.Transport.
func (g *guard) StreamCh() <-chan net.Conn { return g.streams }

// PacketCh implements memberlist.Transport.
func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }

// FinalAdvertiseAddr implements memberlist.Transport. Memberlist calls it when it starts, and
// again later.
func (g *guard) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	g.starting()
	return g.NetTransport.FinalAdvertiseAddr(ip, port)
}

// Shutdown implements memberlist.Transport.
func (g *guard) Shutdown() error {
	var err error
	g.ended.Do(func() {
		err = g.NetTransport.Shutdown() // it waits until what it has is taken
		close(g.stop)
		g.wg.Wait()
	})
	return err
}

func (g *guard) passPackets() {
	for {
		select {
		case p := <-g.NetTransport.PacketCh():
			if !g.keyed && !bounded(p.Buf, 4) {
				continue
			}
			// The buffer is of 64 KiB, whatever came.
			p.Buf = append(make([]byte, 0, len(p.Buf)), p.Buf...)
			select {
			case g.packets <- p:
			case <-g.stop:
			}
		case <-g.stop:
			return
		}
	}
}

// bounded reports whether a packet in the clear holds nothing compressed: 64 KiB of
// that can be 40 MB.
func bounded(b []byte, depth int) bool {
	switch {
	case len(b) == 0:
		return true
	case depth == 0 || b[0] == kindCompress:
		return false
	case b[0] == kindCRC && len(b) > 5:
		return bounded(b[5:], depth-1)
	case b[0] == kindCompound && len(b) > 2:
		n := int(b[1])
		if len(b) < 2+2*n {
			return false
		}
		lengths, parts := b[2:2+2*n], b[2+2*n:]
		for ; len(lengths) > 0; lengths = lengths[2:] {
			size := int(binary.BigEndian.Uint16(lengths))
			if size > len(parts) {
				return true // memberlist stops here, too
			}
			if !bounded(parts[:size], depth-1) {
				return false
			}
			parts = parts[size:]
		}
	}
	return true
}

func (g *guard) passStreams() {
	for {
		select {
		case conn := <-g.NetTransport.StreamCh():
			source := inbound.Host(conn)
			if !g.silent.Take(source) {
				g.refuse(conn, errors.New("too many connections that have said nothing yet"))
				continue
			}
			g.wg.Go(func() {
				defer g.silent.GiveBack(source)
				g.pass(conn, source)
			})
		case <-g.stop:
			return
		}
	}
}

func (g *guard) refuse(conn net.Conn, err error) {
	_ = conn.Close()
	if g.once.First("stream " + inbound.Host(conn)) {
		g.logger.Warn("gossip connection refused", slog.String("remote", conn.RemoteAddr().String()), slog.Any("error", err))
	}
}

// pass hands a connection to memberlist once it has said how long its message is, and
// there is a place for one of that length.
func (g *guard) pass(conn net.Conn, source string) {
	if err := conn.SetDeadline(time.Now().Add(streamHeader)); err != nil {
		_ = conn.Close()
		return
	}
	p := &inbound.Reader{In: bufio.NewReaderSize(conn, mostPrefix), Most: mostPrefix}
	size, err := g.length(p)
	if errors.Is(err, io.EOF) && len(p.Kept) == 0 {
		_ = conn.Close() // somebody looks whether the port is open
		return
	}
	if err != nil {
		g.refuse(conn, err)
		return
	}
	of := g.small
	if size > smallStream {
		of = g.large
	}
	if !of.Take(source) {
		g.refuse(conn, fmt.Errorf("%w: too many at once", errStream))
		return
	}
	in := &stream{Conn: conn, rest: io.MultiReader(bytes.NewReader(p.Kept), io.LimitReader(p.In, size)), leave: func() { of.GiveBack(source) }}
	select {
	case g.streams <- in:
	case <-g.stop:
		_ = in.Close()
	}
}

// length returns how many bytes a connection's message may have at most.
func (g *guard) length(p *inbound.Reader) (int64, error) {
	kind, err := p.ReadByte()
	switch {
	case err != nil:
		return 0, err
	case g.keyed != (kind == kindEncrypt):
		// Memberlist refuses it by this byte, and tells the other end why.
		return smallStream, nil
	case g.keyed:
		var b [4]byte
		if _, err := io.ReadFull(p, b[:]); err != nil {
			return 0, err
		}
		return checkLength(int64(binary.BigEndian.Uint32(b[:])))
	case kind == kindPing:
		return smallStream, nil
	case kind != kindPushPull:
		return 0, fmt.Errorf("%w: kind %d", errStream, kind)
	}
	var header struct{ Nodes, UserStateLen int }
	if err := codec.NewDecoder(p, &codec.MsgpackHandle{}).Decode(&header); err != nil {
		return 0, fmt.Errorf("%w: %w", errStream, err)
	}
	const node = 1 << 10 // a member with the longest name and tags
	if header.Nodes < 0 || header.Nodes > mostMembers || header.UserStateLen < 0 || header.UserStateLen > mostStream {
		return 0, fmt.Errorf("%w: a state of %d members and %d bytes", errStream, header.Nodes, header.UserStateLen)
	}
	return checkLength(min(int64(header.Nodes)*node+int64(header.UserStateLen), mostStream))
}

func checkLength(n int64) (int64, error) {
	if n > mostStream {
		return 0, fmt.Errorf("%w: a message of %d bytes, at most %d are taken", errStream, n, mostStream)
	}
	return n, nil
}

// stream is a connection with a place.
type stream struct {
	net.Conn
	rest  io.Reader
	leave func()
	once  sync.Once
}

func (s *stream) Read(p []byte) (int, error) { return s.rest.Read(p) }

// Close implements net.Conn.
func (s *stream) Close() error {
	s.once.Do(s.leave)
	return s.Conn.Close()
}

// newcomers bounds the names that gossip brings.
type newcomers Agent

var _ memberlist.AliveDelegate = (*newcomers)(nil)

// NotifyAlive is called before anything else is made of the news.
func (n *newcomers) NotifyAlive(peer *memberlist.Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	_, known := n.heard[peer.Name]
	if !known && len(n.heard) >= mostMembers {
		n.forget(now)
	}
	if !known && len(n.heard) >= mostMembers || len(peer.Meta) > mostMeta || len(peer.Name) > 128 {
		return fmt.Errorf("%w: a member of %d bytes beside %d others", errStream, len(peer.Name)+len(peer.Meta), len(n.heard))
	}
	n.heard[peer.Name] = now
	return nil
}

// forget makes room, at most once a second: news can name members that memberlist never
// takes in, or not for long. The caller holds mu.
func (n *newcomers) forget(now time.Time) {
	if now.Sub(n.forgot) < time.Second {
		return
	}
	n.forgot = now
	maps.DeleteFunc(n.heard, func(name string, last time.Time) bool {
		_, in := n.members[name]
		return !in && now.Sub(last) > forgetAfter
	})
}

// heardOf reports whether memberlist may have a member of that name.
func (a *Agent) heardOf(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.heard[name]
	return ok
}
