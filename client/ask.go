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
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/socket"
)

// call is one request, to any gateway that answers.
type call struct {
	method, path, query string
	body                []byte
	within              time.Duration // for one gateway
}

// check returns why the gateways cannot be asked anything.
func (c *Client) check(ctx context.Context) error {
	switch {
	case c == nil || len(c.bases) == 0:
		return fmt.Errorf("%w: take the Client that New returns", ErrConfig)
	case ctx == nil:
		return fmt.Errorf("%w: nil context: pass context.Background() if there is no other", ErrConfig)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return nil
	}
}

// ticket makes a call that is answered with how a ticket stands.
func (c *Client) ticket(ctx context.Context, q call) (d document, sent time.Time, err error) {
	d = document{Left: duration(c.cfg.TTL)} // which an older gateway does not send
	sent, err = c.do(ctx, q, &d)
	return d, sent, err
}

// document is a ticket as gateways describe it.
type document struct {
	ID       string                `json:"id"`
	Pool     string                `json:"pool"`
	State    admission.TicketState `json:"state"`
	Position int                   `json:"position"`
	ETA      duration              `json:"eta"`
	Fence    string                `json:"fence"`
	Upstream string                `json:"upstream"`
	Left     duration              `json:"left"`
}

func (d document) state() TicketState {
	return TicketState{
		Pool: d.Pool, Granted: d.State == admission.TicketGranted, Place: d.Position, Expected: time.Duration(d.ETA),
		Left: time.Duration(d.Left), Fence: d.Fence, Upstream: d.Upstream,
	}
}

// duration is a time.Duration that JSON has as "30s".
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

func pathOf(id string) string { return ticketsPath + "/" + url.PathEscape(id) }

// end ends a ticket; it is no error if that has ended already.
func (c *Client) end(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, endIn)
	defer cancel()
	within := endIn / time.Duration(len(c.bases)) // a silent gateway leaves time for the others
	for {
		_, err := c.do(ctx, call{method: http.MethodDelete, path: pathOf(id), within: within}, nil)
		switch {
		case err == nil, errors.Is(err, ErrTicketEnded):
			return nil
		case errors.Is(err, ErrTicketUsed):
			return err
		case errors.Is(err, ErrUnavailable) && pause(ctx, c.retry()): // soon another gateway can
		default:
			return fmt.Errorf("%w; the ticket ends when its time to live of %v is over", err, c.cfg.TTL)
		}
	}
}

// do asks the gateways in turn, beginning with the gateway that answered last, until one gives
// an answer. It returns when that request was sent.
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

// failure is why a gateway gave no answer, so that another one is asked.
type failure struct {
	kind error // ErrUnreachable or ErrUnavailable
	text string
}

func (f *failure) Error() string { return f.kind.Error() + ": " + f.text }

func (f *failure) Unwrap() error { return f.kind }

// add adds another failure: one gateway that answers makes it ErrUnavailable.
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

// retry is the pause before all gateways are asked again.
func (c *Client) retry() time.Duration { return min(c.cfg.TTL/30, time.Second) }

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
