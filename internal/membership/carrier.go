package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
)

// Carrier takes the core's messages off the connections between gateways, and puts them there. It is
// there before the Cluster, because connections are. A message is a datagram: the id of the process
// that sends it, and what [core.Message.Encode] returns. An end that knows that long packets pass
// sends its id alone. So what comes shows which process is there, and that long packets pass.
type Carrier struct {
	once oncelog.Limit

	mu    sync.Mutex
	conns map[string]*conn
	// What follows is set between Start and Close.
	post   func(event any)
	id     core.ID
	links  Links
	logger *slog.Logger
}

// greet has a gateway told which process is here: long packets pass to it.
type greet struct{ name string }

// conn is a connection to a gateway.
type conn struct {
	proved bool          // here
	id     core.ID       // 0: nothing has come yet
	heard  chan struct{} // closed when something has
}

// NewCarrier returns a Carrier for one Cluster.
func NewCarrier() *Carrier { return &Carrier{conns: make(map[string]*conn)} }

// Changed takes in what has become of a connection. It does not block.
func (c *Carrier) Changed(change transport.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.conns[change.Name]
	if !change.Up {
		if k != nil && k.id != 0 && c.post != nil {
			c.post(core.Disconnected{From: k.id})
		}
		delete(c.conns, change.Name)
		return
	}
	if k == nil {
		k = &conn{heard: make(chan struct{})}
		c.conns[change.Name] = k
	}
	if change.Proved && !k.proved {
		k.proved = true
		if c.post != nil {
			c.post(greet{change.Name})
		}
	}
}

// Datagram takes in a message; datagrams of others it ignores. It does not block.
func (c *Carrier) Datagram(ch wire.Channel, from transport.Caller, data []byte) {
	if ch == wire.Raft {
		c.take(from.Name, from.RTT(), data)
	}
}

// take takes in a message of a gateway.
func (c *Carrier) take(name string, trip time.Duration, data []byte) {
	var m core.Message
	var err error
	switch {
	case len(data) < idSize:
		err = errShort
	case len(data) > idSize:
		m, err = core.DecodeMessage(data[idSize:])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.conns[name]
	if k == nil || c.post == nil {
		return
	}
	if err != nil {
		if c.once.First(name) {
			c.logger.Warn("a message of another gateway is refused", slog.String("name", name), slog.Any("error", err))
		}
		return
	}
	id := core.ID(binary.BigEndian.Uint64(data))
	if id == 0 || id != k.id && !c.meet(name, k, id) {
		return
	}
	if len(data) > idSize {
		c.post(core.Received{From: id, Message: m, Trip: trip})
	}
}

const idSize = 8

var errShort = errors.New("a message without a sender")

// meet notes which process is at the other end of a connection, and reports whether it can be.
func (c *Carrier) meet(name string, k *conn, id core.ID) bool {
	if id == c.id {
		return false
	}
	for other, there := range c.conns {
		if there.id == id && other != name {
			return false // nobody speaks for another one
		}
	}
	if k.id != 0 {
		c.post(core.Disconnected{From: k.id})
	} else {
		close(k.heard)
	}
	k.id = id
	c.post(core.Connected{To: id, Name: name})
	return true
}

// begin has somebody told of what comes.
func (c *Carrier) begin(id core.ID, config Config, post func(event any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.post, c.id, c.links, c.logger = post, id, config.Links, config.Logger
	for name, k := range c.conns {
		if k.proved {
			post(greet{name})
		}
	}
}

func (c *Carrier) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.post = nil
}

// greet tells a gateway which process is here.
func (c *Carrier) greet(name string) { c.put(name, nil) }

// send sends a message, or drops it.
func (c *Carrier) send(s core.Send) {
	to := ""
	c.mu.Lock()
	for name, k := range c.conns {
		if k.id == s.To {
			to = name
		}
	}
	c.mu.Unlock()
	if data, err := s.Message.Encode(); err == nil && to != "" {
		c.put(to, data)
	}
}

func (c *Carrier) put(to string, data []byte) {
	data = append(binary.BigEndian.AppendUint64(make([]byte, 0, idSize+len(data)), uint64(c.id)), data...)
	_ = c.links.SendDatagram(transport.To{Name: to}, wire.Raft, data) // what is lost is said again
}

// dial tries to reach a gateway, and waits until something has come from there.
func (c *Carrier) dial(ctx context.Context, d core.Dial) error {
	ctx, cancel := context.WithTimeout(ctx, d.Most)
	defer cancel()
	if d.Doubt {
		_, err := c.links.Meet(ctx, d.Addr)
		return err
	}
	if err := c.links.Reach(ctx, transport.To{Name: d.Name, Addr: d.Addr}, d.First); err != nil {
		return err
	}
	c.mu.Lock()
	k := c.conns[d.Name]
	c.mu.Unlock()
	if k == nil {
		return fmt.Errorf("%w: %s", transport.ErrLinkDown, d.Name)
	}
	select {
	case <-k.heard:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("connected to %s, and nothing comes from there: %w", d.Name, ctx.Err())
	}
}
