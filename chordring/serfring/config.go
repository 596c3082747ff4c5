package serfring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"
)

// KeySize is the length of a gossip key in bytes.
const KeySize = 32

// tagLimit is what memberlist can carry of tags in all, encoded, in bytes.
const tagLimit = 512

// Errors of [Start] and of joining.
var (
	// errConfig is wrapped by every error of [Config.Validate].
	errConfig = errors.New("serfring: bad configuration")
	// errBind means that the gossip address cannot be listened on.
	errBind = errors.New("serfring: cannot listen for gossip")
	// errNobody means that no address of the join list answered.
	errNobody = errors.New("serfring: no gateway of the join list answers")
	// ErrName means that another live gateway has this gateway's name.
	ErrName = errors.New("serfring: another gateway has this name")
	// ErrKey means that the asked gateway uses another gossip key, or none. It then closes the
	// connection, as one does that ends just then: which it is, only trying again tells.
	ErrKey = errors.New("serfring: gossip key differs, or the other gateway has just ended")
)

// Config says who this gateway is and how it finds the others.
type Config struct {
	// Name of the gateway, unique among the gateways.
	Name string
	// Boot is a random string, new for each start of the process.
	Boot string
	// Version of the program, shown to others.
	Version string
	// PeerAddr is the address (host:port) at which other gateways reach this
	// one's peer port.
	PeerAddr string
	// Expect is the number of gateways that start a new cluster together; all
	// of them say the same number. 1 or less: this one starts one alone or
	// joins one.
	Expect int

	// Bind is the address (host:port) to gossip on, UDP and TCP. An empty host
	// means every address, port 0 one that is free.
	Bind string
	// Advertise is the address (host or host:port) at which others reach Bind.
	// Empty: Bind's host, or the first private address of this machine. A host
	// name is resolved once, at the start.
	Advertise string
	// Join lists addresses (host:port) of other gateways. Any one that answers
	// is enough to begin with; the others are asked on. This gateway's own may be
	// among them.
	Join []string
	// Keys are for gossip, KeySize bytes each: the first encrypts, any of them
	// decrypts. None: gossip goes in the clear. See [Agent.SetKeys].
	Keys [][]byte

	// ProbeInterval and ProbeTimeout say how often one other gateway is asked
	// for a sign of life, and how long it has to give it. Default 200 ms and
	// 100 ms.
	ProbeInterval, ProbeTimeout time.Duration
	// RetryInterval is the time between attempts to join while nobody is there.
	// Addresses of Join that do not answer are asked again after a quarter of it
	// to five times as long, and all of them every thirty times as long. Default
	// 1 s.
	RetryInterval time.Duration
	// LeaveDelay is how long Leave stays to let the news spread. Default
	// 200 ms.
	LeaveDelay time.Duration

	// Logger receives what serf and the agent have to say; nil discards it.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	setDefault := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	setDefault(&c.ProbeInterval, 200*time.Millisecond)
	setDefault(&c.ProbeTimeout, 100*time.Millisecond)
	setDefault(&c.RetryInterval, time.Second)
	setDefault(&c.LeaveDelay, 200*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c. It touches nothing.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...))
	}
	if c.Name == "" {
		bad("the name is empty")
	}
	if len(c.Name) > 128 {
		bad("the name has %d bytes, at most 128 are allowed", len(c.Name))
	}
	if c.Boot == "" {
		bad("the boot id is empty")
	}
	for _, key := range c.Keys {
		if n := len(key); n != KeySize {
			bad("the gossip key has %d bytes, it must have %d (`kgate keygen` makes one)", n, KeySize)
		}
	}
	if _, _, err := splitHostPort(c.Bind); err != nil {
		bad("gossip address %q: %v", c.Bind, err)
	}
	for _, addr := range c.Join {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad("join address %q is not host:port", addr)
		}
	}
	if n := encodedSize(c.tags()); n > tagLimit {
		bad("name, peer address, version and boot id are too long together: %d bytes, at most %d", n, tagLimit)
	}
	return errors.Join(errs...)
}

// The tags of a member.
const (
	tagPeer    = "peer"
	tagBoot    = "boot"
	tagVersion = "version"
	tagExpect  = "expect"
)

func (c Config) tags() map[string]string {
	return map[string]string{
		tagPeer:    c.PeerAddr,
		tagBoot:    c.Boot,
		tagVersion: c.Version,
		tagExpect:  strconv.Itoa(max(c.Expect, 1)),
	}
}

// encodedSize bounds from above what serf makes of tags: a magic byte, a
// msgpack map, and strings with at most 3 bytes of header each.
func encodedSize(tags map[string]string) int {
	n := 1 + 3
	for k, v := range tags {
		n += 3 + len(k) + 3 + len(v)
	}
	return n
}

func splitHostPort(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, errors.New("write host:port, for example :7946")
	}
	p, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port number", text)
	}
	return host, int(p), nil
}

// advertised resolves Advertise to an IP address and a port; the zero values
// leave the choice to memberlist.
func (c Config) advertised(ctx context.Context) (ip string, port int, err error) {
	if c.Advertise == "" {
		return "", 0, nil
	}
	host := c.Advertise
	if h, p, err := splitHostPort(c.Advertise); err == nil {
		host, port = h, p
	}
	if net.ParseIP(host) != nil || host == "" {
		return host, port, nil
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return "", 0, fmt.Errorf("%w: advertise address %q: %w", errConfig, c.Advertise, err)
	}
	return addrs[0].IP.String(), port, nil
}
