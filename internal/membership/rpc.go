package membership

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/inbound"
	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/peercert"
)

// Raft believes what it is told: who speaks, in which term, and that a configuration
// can be decoded. So each message of another gateway is read here first. What no
// gateway sends ends the connection, before raft has seen it.

// rpcGuard judges the messages that other gateways send to raft.
type rpcGuard struct{ *raftNode }

const (
	// maxRPC bounds a message in bytes: 64 entries, raft's own bound, of the longest
	// commands.
	maxRPC = 4 << 20
)

// Raft's kinds of messages: the first byte of each.
const (
	rpcAppendEntries byte = iota
	rpcRequestVote
	rpcInstallSnapshot
	rpcTimeoutNow
	rpcRequestPreVote
)

// rpcConn is a connection that passes messages on to raft which judge has let through.
type rpcConn struct {
	net.Conn
	judge func(message raft.WithRPCHeader) error

	messages *codec.Decoder
	// What raft has not read yet: the present message, of which it has read so much, and
	// the snapshot behind it.
	message inbound.Reader
	read    int
	body    int64
}

func newRPCConn(conn net.Conn, judge func(raft.WithRPCHeader) error) *rpcConn {
	c := &rpcConn{Conn: conn, judge: judge, message: inbound.Reader{In: bufio.NewReader(conn), Most: maxRPC}}
	c.messages = codec.NewDecoder(&c.message, &codec.MsgpackHandle{})
	return c
}

// Read implements net.Conn for raft, which calls it from one goroutine.
func (c *rpcConn) Read(p []byte) (int, error) {
	if c.read == len(c.message.Kept) && c.body > 0 {
		n, err := c.message.In.Read(p[:min(int64(len(p)), c.body)])
		c.body -= int64(n)
		return n, err
	}
	if c.read == len(c.message.Kept) {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.message.Kept[c.read:])
	c.read += n
	return n, nil
}

// next reads one message and has it judged.
func (c *rpcConn) next() error {
	c.message.Kept, c.read = c.message.Kept[:0], 0
	if cap(c.message.Kept) > views.MaxCommand {
		c.message.Kept = nil
	}
	kind, err := c.message.ReadByte()
	if err != nil {
		return err
	}
	message, err := newMessage(kind)
	if err != nil {
		return err
	}
	if err := c.messages.Decode(message); err != nil {
		return err
	}
	if s, ok := message.(*raft.InstallSnapshotRequest); ok {
		c.body = s.Size
	}
	return c.judge(message)
}

func newMessage(kind byte) (raft.WithRPCHeader, error) {
	switch kind {
	case rpcAppendEntries:
		return new(raft.AppendEntriesRequest), nil
	case rpcRequestVote:
		return new(raft.RequestVoteRequest), nil
	case rpcInstallSnapshot:
		return new(raft.InstallSnapshotRequest), nil
	case rpcTimeoutNow:
		return new(raft.TimeoutNowRequest), nil
	case rpcRequestPreVote:
		return new(raft.RequestPreVoteRequest), nil
	default:
		return nil, fmt.Errorf("%w: kind %d", errRPC, kind)
	}
}

// admit judges the greeting of a raft connection. A gateway with an empty log goes
// with whoever lets it in.
func (g *rpcGuard) admit(_ net.Conn, cluster, server string) error {
	if server != g.storage.meta.Server {
		return fmt.Errorf("%w: this is %s, not %s", errGreeting, g.storage.meta.Server, server)
	}
	g.storage.mu.Lock()
	defer g.storage.mu.Unlock()
	switch own := g.storage.meta.Cluster; {
	case cluster == "":
		return fmt.Errorf("%w: no cluster", errGreeting)
	case cluster == own:
		return nil
	case own == "" || g.blank():
		return g.storage.setCluster(cluster)
	default:
		return fmt.Errorf("%w: this gateway belongs to cluster %s, not %s", errGreeting, own, cluster)
	}
}

// guard returns conn as raft is to see it.
func (g *rpcGuard) guard(conn net.Conn) net.Conn {
	var caller *tls.ConnectionState
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		caller = &state
	}
	return newRPCConn(conn, func(message raft.WithRPCHeader) error {
		err := g.judgeRPC(caller, message)
		if err != nil && g.closing.Err() == nil && g.once.First("raft message refused") {
			g.config.Logger.Warn("raft message of another gateway refused, and its connection closed",
				slog.String("remote", conn.RemoteAddr().String()), slog.Any("error", err))
		}
		return err
	})
}

// judgeRPC returns an error for a message that no honest gateway sends. Over TLS it has
// to come from the gateway in whose name it speaks; caller is nil without.
func (g *rpcGuard) judgeRPC(caller *tls.ConnectionState, message raft.WithRPCHeader) error {
	header := message.GetRPCHeader()
	sender := string(header.ID)
	if err := peercert.OfState(caller, nameOf(raft.ServerID(sender))); err != nil {
		return fmt.Errorf("%w: in the name of %q: %w", errRPC, sender, err)
	}
	if _, server := splitAddress(raft.ServerAddress(header.Addr)); server != sender || sender == "" {
		return fmt.Errorf("%w: %q speaks as %q", errRPC, sender, header.Addr)
	}
	switch m := message.(type) {
	case *raft.AppendEntriesRequest:
		if err := errors.Join(g.plausible(m.Term, m.PrevLogTerm), checkEntries(m)); err != nil {
			return err
		}
		return g.checkOverlap(m)
	case *raft.RequestVoteRequest:
		return errors.Join(g.plausible(m.Term, m.LastLogTerm), g.roll.mayElect(raftfile.Position{Index: m.LastLogIndex, Term: m.LastLogTerm}))
	case *raft.RequestPreVoteRequest:
		return errors.Join(g.plausible(m.Term, m.LastLogTerm), g.roll.mayElect(raftfile.Position{Index: m.LastLogIndex, Term: m.LastLogTerm}))
	case *raft.InstallSnapshotRequest:
		if m.Size < 0 || m.Size > maxSnapshot || m.SnapshotVersion != 1 || !isConfiguration(m.Configuration) {
			return fmt.Errorf("%w: a snapshot of %d bytes, version %d, or its configuration", errRPC, m.Size, m.SnapshotVersion)
		}
		return g.plausible(m.Term, m.LastLogTerm)
	case *raft.TimeoutNowRequest:
		if sender != g.leaderID() && sender != g.storage.meta.Server {
			return fmt.Errorf("%w: %q calls for an election, and does not lead", errRPC, sender)
		}
		return nil
	default:
		return fmt.Errorf("%w: %T", errRPC, message)
	}
}

func checkEntries(m *raft.AppendEntriesRequest) error {
	for i, e := range m.Entries {
		if e == nil || e.Term > m.Term || e.Index != m.PrevLogEntry+1+uint64(i) {
			return fmt.Errorf("%w: entry %d of %d", errRPC, i+1, len(m.Entries))
		}
		if e.Type == raft.LogConfiguration && !isConfiguration(e.Data) {
			return fmt.Errorf("%w: entry %d is no configuration", errRPC, e.Index)
		}
	}
	return nil
}

// isConfiguration reports whether raft can decode data; where it cannot, it panics.
func isConfiguration(data []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	raft.DecodeConfiguration(data)
	return true
}
