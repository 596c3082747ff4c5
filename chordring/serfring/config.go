package serfring

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/transport"
)

// tagLimit is what memberlist can carry of tags in all, encoded, in bytes.
const tagLimit = 512

// Errors of [Start] and of joining.
var (
	// errConfig is wrapped by every error of [Config.Validate].
	errConfig = errors.New("bad configuration")
	// errStart means that serf does not start.
	errStart = errors.New("cannot start")
	// errNobody means that an address of the join list did not answer.
	errNobody = errors.New("no answer")
	// errName means that another live gateway has this gateway's name.
	errName = errors.New("another gateway has this name")
	// errKey means that two gateways do not accept each other's certificates.
	errKey = errors.New("key differs")
	// errPort means that what answers does not speak TLS, as the clients' port.
	errPort = errors.New("not a peer port")
	// errBroken means that the connection was closed. Why, only trying again tells.
	errBroken = errors.New("connection closed: key differs, or the other gateway has just ended")
)

// Config says who this gateway is and how it finds the others.
type Config struct {
	// Name of the gateway, unique among the gateways.
	Name string
	// Boot is a random string, new for each start of the process.
	Boot string
	// Version of the program, shown to others.
	Version string
	// Expect is the number of gateways that start a new cluster together; all
	// of them say the same number. 1 or less: this one starts one alone or
	// joins one.
	Expect int

	// Links has the connections to other gateways. Its address is where they reach this one: an
	// IP address and a port. It must be given the Carrier's Datagram and Answer, and be closed
	// after the agent.
	Links *transport.Transport
	// Carrier belongs to this agent.
	Carrier *Carrier
	// Join lists addresses (host:port) of other gateways' peer ports. Any one that answers
	// is enough to begin with; the others are asked on. This gateway's own may be
	// among them.
	Join []string

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
	if c.Links == nil || c.Carrier == nil {
		bad("Links and Carrier are needed")
	} else if _, err := netip.ParseAddrPort(c.Links.Addr().String()); err != nil {
		bad("the address %s of the peer port is no IP address and port", c.Links.Addr())
	}
	for _, addr := range c.Join {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad("join address %q is not host:port", addr)
		}
	}
	if n := encodedSize(farewell(c.tags())); n > tagLimit {
		bad("version and boot id are too long together: %d bytes, at most %d", n, tagLimit)
	}
	return errors.Join(errs...)
}

// The tags of a member.
const (
	tagBoot    = "boot"
	tagVersion = "version"
	tagExpect  = "expect"
	// tagLeaving is set by a gateway that leaves, see [Agent.Leave].
	tagLeaving = "leaving"
)

func (c Config) tags() map[string]string {
	return map[string]string{
		tagBoot:    c.Boot,
		tagVersion: c.Version,
		tagExpect:  strconv.Itoa(max(c.Expect, 1)),
	}
}

// farewell returns a gateway's tags with the mark that it leaves.
func farewell(tags map[string]string) map[string]string {
	tags = maps.Clone(tags)
	tags[tagLeaving] = "yes"
	return tags
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
