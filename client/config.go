package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/socket"
)

// Config of a Client. The zero value asks the gateway on this machine.
type Config struct {
	// Admins are the base URLs of gateways: their admin addresses, unix:/PATH for a socket,
	// or their client addresses for pools with tickets: true. If one does not answer, the
	// next one is asked. Default http://127.0.0.1:9080.
	Admins []string
	// Token is the admin token, if the gateways have one.
	Token string
	// TTL is how long a ticket or a slot outlives its holder, from 1 s to 10
	// min. A slot is renewed three times in that time, so a longer one stands a
	// longer interruption, and a shorter one is free sooner when its holder
	// is gone. Default 30 s.
	TTL time.Duration
	// Note says who asks, for people; at most 256 bytes.
	Note string
	// Client says whose slots these are, for the pool's limits of one client and the order fair: a
	// name, or what the pool's per_client.key says. It is for admin addresses only. Empty: nobody's.
	Client string
	// HTTPClient sends the requests. Its Timeout must not be shorter than TTL. Default: the
	// Client's own.
	HTTPClient *http.Client
	// OnWait is called while Acquire, or a ticket's Wait, waits, with the place in line, from 1,
	// over all gateways, and the wait to expect; 0: it is not known. Nil: nobody is told.
	OnWait func(place int, expected time.Duration)
	// Logger gets what goes wrong and is tried again; nil: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultAdmin = "http://127.0.0.1:9080"
	defaultTTL   = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if len(c.Admins) == 0 {
		c.Admins = []string{defaultAdmin}
	}
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	if c.HTTPClient == nil {
		tr := socket.Transport()
		tr.MaxIdleConnsPerHost, tr.IdleConnTimeout, tr.ForceAttemptHTTP2 = 4, time.Minute, true
		c.HTTPClient = &http.Client{Transport: tr}
	}
	if c.OnWait == nil {
		c.OnWait = func(int, time.Duration) {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	for _, a := range c.Admins {
		if _, err := socket.ParseURL(a); err != nil {
			errs = append(errs, fmt.Errorf("address %w", err))
		} else if _, ok := socket.Path(a); ok && c.HTTPClient != nil {
			errs = append(errs, fmt.Errorf("address %q needs the client's own HTTPClient", a))
		}
	}
	if h := c.HTTPClient; h != nil && h.Timeout > 0 && h.Timeout < cmp.Or(c.TTL, defaultTTL) {
		errs = append(errs, fmt.Errorf("the HTTPClient's Timeout of %v is shorter than the TTL of %v", h.Timeout, cmp.Or(c.TTL, defaultTTL)))
	}
	if c.TTL != 0 && (c.TTL < admission.MinTTL || c.TTL > admission.MaxTTL) {
		errs = append(errs, fmt.Errorf("a TTL of %v is not between %v and %v", c.TTL, admission.MinTTL, admission.MaxTTL))
	}
	if len(c.Note) > admission.MaxNote {
		errs = append(errs, fmt.Errorf("a note of %d bytes is longer than %d", len(c.Note), admission.MaxNote))
	}
	if strings.ContainsAny(c.Token, "\r\n") {
		errs = append(errs, errors.New("the token holds line breaks"))
	}
	if len(errs) > 0 {
		return errors.Join(append([]error{ErrConfig}, errs...)...)
	}
	return nil
}
