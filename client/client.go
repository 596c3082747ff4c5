package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// hearFor is how long after its caller has given up the answer is awaited
	// that tells a new ticket's name.
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
	if c.own {
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
		var gone *GoneError
		switch {
		case errors.As(err, &gone) && gone.Reason != string(admission.EndCancelled) && gone.Reason != string(admission.EndReleased):
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
	t, err := c.Request(ctx, pool)
	if err != nil {
		return nil, err
	}
	return t.acquire(ctx)
}

// TryAcquire returns a slot if one is free, and ErrBusy if not.
func (c *Client) TryAcquire(ctx context.Context, pool string) (*Slot, error) {
	t, err := c.Request(ctx, pool)
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeoutCause(ctx, tryFor, ErrBusy)
	defer cancel()
	return t.acquire(wait)
}

// Request puts a ticket in the pool's line.
func (c *Client) Request(ctx context.Context, pool string) (*Ticket, error) {
	body, err := json.Marshal(map[string]string{"pool": pool, "ttl": c.cfg.TTL.String(), "note": c.cfg.Note})
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t := &Ticket{c: c, pool: pool}
	// A ticket whose name is not heard stands in the line until its TTL.
	asking, done := outlive(ctx, hearFor)
	defer done()
	t.status, t.signed, err = c.ticket(asking, call{method: http.MethodPost, path: ticketsPath, body: body, within: answerIn})
	if err != nil {
		return nil, err
	}
	if t.id = t.status.ID; t.id == "" {
		return nil, fmt.Errorf("%w as a kgate does", ErrUnreachable)
	}
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), t.Cancel())
	}
	return t, nil
}

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

// call is one request, to whichever gateway answers.
type call struct {
	method, path, query string
	body                []byte
	within              time.Duration // for one gateway
}

// do asks the gateways in turn, beginning with the one that answered last,
// until one can tell. It returns when the request that was answered was sent.
func (c *Client) do(ctx context.Context, q call, into any) (sent time.Time, err error) {
	start := int(c.good.Load())
	none := &failure{kind: ErrUnreachable}
	for i := range c.bases {
		at := (start + i) % len(c.bases)
		sent = time.Now()
		err = c.ask(ctx, c.bases[at], q, into)
		if err != nil && ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		var f *failure
		if !errors.As(err, &f) {
			c.good.Store(int64(at))
			return sent, err
		}
		c.cfg.Logger.Debug("gateway does not serve", slog.String("gateway", socket.Name(c.bases[at])), slog.String("cause", f.text))
		none.add(f)
	}
	return sent, none
}

// failure is why a gateway cannot tell, so that another one is asked.
type failure struct {
	kind error // ErrUnreachable or ErrUnavailable
	text string
}

func (f *failure) Error() string { return f.kind.Error() + ": " + f.text }

func (f *failure) Unwrap() error { return f.kind }

// add sums up: one gateway that answers makes it ErrUnavailable.
func (f *failure) add(other *failure) {
	if errors.Is(other.kind, ErrUnavailable) {
		f.kind = ErrUnavailable
	}
	if f.text != "" {
		f.text += "; "
	}
	f.text += other.text
}

// ask sends a request to one gateway.
func (c *Client) ask(ctx context.Context, base *url.URL, q call, into any) error {
	ctx, cancel := context.WithTimeout(ctx, q.within)
	defer cancel()
	target := base.JoinPath(q.path)
	target.RawQuery = q.query
	req, err := http.NewRequestWithContext(ctx, q.method, target.String(), bytes.NewReader(q.body))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return &failure{kind: ErrUnreachable, text: err.Error()}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &failure{kind: ErrUnreachable, text: socket.Name(base) + ": " + err.Error()}
	}
	if resp.StatusCode/100 != 2 {
		return answerError(socket.Name(base), resp, data)
	}
	if into == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &failure{kind: ErrUnreachable, text: socket.Name(base) + " does not answer as a kgate does"}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
