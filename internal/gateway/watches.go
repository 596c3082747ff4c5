package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/replication"
)

// watchers are the gateways that watch tickets of this one: see polls.
type watchers struct {
	mu sync.Mutex
	of map[string]net.Conn
}

// Accept takes a stream on which another gateway of the view watches tickets; false if it is of
// something else. A stream takes the place of the one before.
func (g *Gateway) Accept(from transport.Caller, name string, conn net.Conn) bool {
	if name != ticketsCall || !g.serving.Load() {
		return false
	}
	if _, in := g.views.View().Named(from.Name); !in {
		return false
	}
	ws := &g.tickets.watchers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	before := ws.of[from.Name]
	ws.of[from.Name] = conn
	g.background(func() {
		if before != nil {
			_ = before.Close()
		}
		defer context.AfterFunc(g.ctx, func() { _ = conn.Close() })()
		g.tickets.serve(conn)
		_ = conn.Close()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.of[from.Name] == conn {
			delete(ws.of, from.Name)
		}
	})
	return true
}

// serve watches what the lines say, until the stream ends.
func (g *ticketCalls) serve(conn net.Conn) {
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex // guards ends and what is written
		ends    = make(map[uint64]context.CancelFunc)
		replies = json.NewEncoder(conn)
	)
	ctx, cancel := context.WithCancel(g.ctx)
	defer wg.Wait()
	defer cancel()
	in := bufio.NewScanner(conn)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		var line watchLine
		if json.Unmarshal(in.Bytes(), &line) != nil {
			return
		}
		mu.Lock()
		if end := ends[line.N]; line.ID == "" || end != nil || len(ends) >= 2*mostWatched { // ends are on their way
			if end != nil {
				end()
			}
			mu.Unlock()
			continue
		}
		watched, end := context.WithCancel(ctx)
		ends[line.N] = end
		mu.Unlock()
		wg.Go(func() {
			reply := watchReply{line.N, g.watch(watched, line)}
			mu.Lock()
			defer mu.Unlock()
			delete(ends, line.N)
			if watched.Err() == nil && replies.Encode(reply) != nil {
				_ = conn.Close()
			}
			end()
		})
	}
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
