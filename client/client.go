package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/socket"
)

const (
	ticketsPath = "/.kgate/tickets"
	maxAnswer   = 64 << 10
	// tryFor is how long TryAcquire lets the gateways find a free slot.
	tryFor = 500 * time.Millisecond
	// answerIn bounds the time that a gateway has for an answer beyond any wait
	// that was asked for.
	answerIn = 5 * time.Second
	// maxPoll bounds the wait that a gateway is asked for.
	maxPoll = 30 * time.Second
	// endIn bounds the time for giving a slot or a place back.
	endIn = 5 * time.Second
	// hearFor is how much longer than its caller RequestTicket waits for a new ticket.
	hearFor = time.Second
)

// Client asks gateways for slots. It is safe for concurrent use.
type Client struct {
	cfg   Config
	own   bool // HTTPClient is
	bases []*url.URL
	good  atomic.Int64 // index of the base that answered last
}

// New returns a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg.withDefaults(), own: cfg.HTTPClient == nil}
	for _, a := range c.cfg.Admins {
		u, err := socket.ParseURL(a)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.bases = append(c.bases, u)
	}
	return c, nil
}

// Close closes the Client's idle connections, but not those of a Config.HTTPClient.
// Slots that are held stay held.
func (c *Client) Close() {
	if c != nil && c.own {
		c.cfg.HTTPClient.CloseIdleConnections()
	}
}

// Acquire waits in the line of the pool for a slot, until ctx ends; then it
// leaves the line. While the gateways cannot do it, as in the moments after one
// of them was lost, Acquire tries again; when its place has been lost, it goes to
// the end of the line. It fails at once with ErrRefused or ErrBusy, and with
// ErrUnreachable: once it is in line, after a TTL without an answer.
func (c *Client) Acquire(ctx context.Context, pool string) (*Slot, error) {
	for {
		s, err := c.acquire(ctx, pool)
		var ended *admission.EndedError
		switch {
		case errors.As(err, &ended) && ended.How != admission.EndCancelled && ended.How != admission.EndReleased:
			c.cfg.Logger.Warn("place in line lost", slog.String("pool", pool), slog.Any("error", err))
		case !errors.Is(err, ErrUnavailable):
			return s, err
		}
		if !pause(ctx, c.retry()) {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// acquire takes one place in line and waits there.
func (c *Client) acquire(ctx context.Context, pool string) (*Slot, error) {
	t, err := c.RequestTicket(ctx, pool)
	if err != nil {
		return nil, err
	}
	return t.acquire(ctx)
}

// TryAcquire returns a slot if one is free, and ErrBusy if not.
func (c *Client) TryAcquire(ctx context.Context, pool string) (*Slot, error) {
	t, err := c.RequestTicket(ctx, pool)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeoutCause(ctx, tryFor, ErrBusy)
	defer cancel()
	return t.acquire(wait)
}

// ask is the document that asks for a ticket.
type ask struct {
	Pool   string `json:"pool"`
	TTL    string `json:"ttl"`
	Note   string `json:"note,omitempty"`
	Client string `json:"client,omitempty"`
}

// RequestTicket takes a place in the line of a pool. The ticket lives for Config.TTL after a sign of
// its holder. When ctx ends with the answer on its way, RequestTicket returns the ticket that comes
// within a second, without an error; a ticket that comes later, or not at all, ends by itself.
func (c *Client) RequestTicket(ctx context.Context, pool string) (*Ticket, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	body, err := json.Marshal(ask{pool, c.cfg.TTL.String(), c.cfg.Note, c.cfg.Client})
	if err != nil {
		return nil, err
	}
	asking, done := outlive(ctx, hearFor)
	defer done()
	d, sent, err := c.ticket(asking, call{method: http.MethodPost, path: ticketsPath, body: body, within: answerIn})
	switch {
	case err != nil:
		return nil, err
	case d.ID == "":
		return nil, fmt.Errorf("%w as a kgate does", ErrUnreachable)
	}
	d.Pool = pool
	return &Ticket{c: c, id: d.ID, last: d.state(), signed: sent}, nil
}

// Ticket returns the ticket that has the ID, whichever gateway gave it. It asks nobody.
func (c *Client) Ticket(id string) *Ticket { return &Ticket{c: c, id: id} }

// outlive returns a context that ends after ctx, by d.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := context.AfterFunc(ctx, func() {
		if pause(longer, d) {
			end(context.Cause(ctx))
		}
	})
	return longer, func() {
		ended()
		end(nil)
	}
}
