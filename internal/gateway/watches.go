package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/replication"
)

// watchers are the gateways that watch tickets of this one: see polls.
type watchers struct {
	mu sync.Mutex
	of map[string]map[uint64]context.CancelFunc // by gateway and number
}

// ConnectionChanged takes in what has become of the connection to another gateway. It does not block.
func (g *Gateway) ConnectionChanged(change transport.Change) {
	if !change.Up {
		g.tickets.polls.lose(change.Name)
		g.tickets.watchers.lose(change.Name)
	}
}

func (ws *watchers) lose(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, end := range ws.of[name] {
		end()
	}
	delete(ws.of, name)
}

// Datagram takes in what another gateway tells of a ticket, or watches. It does not block.
func (g *Gateway) Datagram(ch wire.Channel, from transport.Caller, data []byte) {
	var line watchLine
	if ch != wire.Tickets || !g.serving.Load() || json.Unmarshal(data, &line) != nil {
		return
	}
	if line.Reply != nil {
		g.tickets.polls.told(from.Name, line)
		return
	}
	g.tickets.watched(from.Name, line)
}

// watched begins or ends to watch a ticket for another gateway.
func (g *ticketCalls) watched(by string, line watchLine) {
	ws := &g.watchers
	_, in := g.views.View().Named(by)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if line.ID == "" {
		if end := ws.of[by][line.N]; end != nil {
			end()
		}
		return
	}
	ctx, end := context.WithCancel(g.ctx)
	if in = in && len(ws.of[by]) < 2*mostWatched; in { // ends are on their way
		if ws.of[by] == nil {
			ws.of[by] = make(map[uint64]context.CancelFunc)
		}
		ws.of[by][line.N] = end
	}
	g.background(func() {
		defer end()
		reply := replyOf(admission.Ticket{}, admission.ErrElsewhere)
		if in {
			reply = g.watch(ctx, line)
			ws.mu.Lock()
			delete(ws.of[by], line.N)
			ws.mu.Unlock()
		}
		if ctx.Err() == nil {
			_ = g.say(by, watchLine{N: line.N, Reply: &reply}) // without a connection nobody waits
		}
	})
}

// watch waits until a ticket is not as the line says, or nobody waits for it any more.
func (g *ticketCalls) watch(ctx context.Context, line watchLine) ticketReply {
	const longest = time.Hour
	owner, err := replication.ParseID(line.ID)
	if err != nil {
		return replyOf(admission.Ticket{}, err)
	}
	return replyOf(g.here(ctx, owner, ticketCall{Op: opTest, ID: line.ID, Granted: line.Granted, Wait: longest}))
}
