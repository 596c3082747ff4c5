package views

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// commandVersion is the version of the commands that this program writes, and
// oldestCommand the oldest that it reads: since then, fields were only added. A
// gateway that meets a newer one in the log stops following it: it cannot know
// what the others make of it.
const (
	commandVersion = 6
	oldestCommand  = 2
)

// Bounds on what a view may hold.
const (
	// maxMembers is the largest number of gateways.
	maxMembers = 10_000
	// maxPools is the largest number of pools.
	maxPools = 4096
	// maxClasses is the largest number of upstreams of a pool that have a k of their own.
	maxClasses = 128

	minLease = 50 * time.Millisecond
	maxLease = time.Hour

	// MaxText bounds a name or an address, maxReason a reason, in bytes.
	MaxText   = 256
	maxReason = 256
	// MaxCommand bounds an entry of the log in bytes.
	MaxCommand = 16 << 10
)

// Command is one entry of the log: exactly one of the pointers is set. Every
// command can be applied twice without harm, because a proposer whose answer
// was lost proposes again.
type Command struct {
	Version    int         `json:"v"`
	Found      *Found      `json:"found,omitempty"`
	Join       *Join       `json:"join,omitempty"`
	Remove     *Remove     `json:"remove,omitempty"`
	Suspend    *Suspend    `json:"suspend,omitempty"`
	Expire     *Expire     `json:"expire,omitempty"`
	Return     *Return     `json:"return,omitempty"`
	Define     *Define     `json:"define,omitempty"`
	SetK       *SetK       `json:"set_k,omitempty"`
	SetRate    *SetRate    `json:"set_rate,omitempty"`
	SetServers *SetServers `json:"set_servers,omitempty"`
	Recover    *Recover    `json:"recover,omitempty"`
	UseTickets *UseTickets `json:"use_tickets,omitempty"`
}

// bodies returns how many of the pointers are set.
func (c Command) bodies() int {
	n := 0
	for _, set := range []bool{
		c.Found != nil, c.Join != nil, c.Remove != nil, c.Suspend != nil, c.Expire != nil, c.Return != nil,
		c.Define != nil, c.SetK != nil, c.SetRate != nil, c.SetServers != nil, c.Recover != nil, c.UseTickets != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

// Leaders reports that only the leader, who judges the others, may propose c.
func (c Command) Leaders() bool {
	return c.Found != nil || c.Join != nil || c.Expire != nil || c.Return != nil
}

// ByPeople reports that c is what people ask for. It needs their token.
func (c Command) ByPeople() bool {
	return c.Define != nil || c.SetK != nil || c.SetRate != nil || c.Suspend != nil
}

// String says for the log what c changes.
func (c Command) String() string {
	switch {
	case c.SetK != nil && c.SetK.Upstream != "":
		return fmt.Sprintf("k of %s at %s: %d", c.SetK.Name, c.SetK.Upstream, c.SetK.K)
	case c.SetK != nil:
		return fmt.Sprintf("k of %s: %d", c.SetK.Name, c.SetK.K)
	case c.SetRate != nil:
		return fmt.Sprintf("rate of %s: down %d, up %d bytes per second", c.SetRate.Name, c.SetRate.Rate.Down, c.SetRate.Rate.Up)
	case c.Define != nil:
		return "new pool " + c.Define.Name
	case c.Suspend != nil:
		return fmt.Sprintf("removal of the nodes %v", c.Suspend.Nodes)
	default:
		data, _ := json.Marshal(c) // of gateways themselves
		return string(data)
	}
}

// Found writes the cluster's id and its lease into the view; the first
// one wins. A gateway that counted another lease than the leader does would
// break the promise, so what a configuration says counts only here.
type Found struct {
	Cluster string        `json:"cluster"`
	Lease   time.Duration `json:"lease"`
	// At is the time of day, in milliseconds of Unix time.
	At int64 `json:"at,omitempty"`
}

// Join lets a gateway in. A member of the same name and another boot is
// suspended in the same view.
type Join struct {
	Name     string `json:"name"`
	Boot     string `json:"boot"`
	PeerAddr string `json:"peer_addr"`
	Server   string `json:"server"`
	// Voided is an incarnation that this one was before, in the same process:
	// it has nothing in flight any more, whatever its lease says. 0: none.
	Voided kmutex.Node `json:"voided,omitempty"`
	// Witness: it votes and serves nothing.
	Witness bool `json:"witness,omitempty"`
}

// Remove takes an incarnation out that has nothing in flight.
type Remove struct {
	Node kmutex.Node `json:"node"`
}

// Suspend takes incarnations out whose leases may still run.
type Suspend struct {
	Nodes []kmutex.Node `json:"nodes"`
	// Reasons says why, for each of Nodes, in words for operators.
	Reasons []string `json:"reasons,omitempty"`
}

// reason returns the i-th one, cut to maxReason.
func (c Suspend) reason(i int) string {
	if i >= len(c.Reasons) {
		return ""
	}
	return CutReason(c.Reasons[i])
}

// CutReason cuts a text to maxReason bytes, at a whole character.
func CutReason(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}

// Expire states that the leases of lost incarnations have run out.
type Expire struct {
	Nodes []kmutex.Node `json:"nodes"`
}

// Return gives a pool the tokens back that lost incarnations owe it
// beyond their leases.
type Return struct {
	Pool  string        `json:"pool"`
	Nodes []kmutex.Node `json:"nodes"`
}

// Define creates a pool; the first definition wins.
type Define struct {
	Name    string            `json:"name"`
	K       int               `json:"k"`
	Binding admission.Binding `json:"binding"`
	Reclaim admission.Reclaim `json:"reclaim"`
	HoldMax time.Duration     `json:"hold_max,omitempty"`
	Rate    Rate              `json:"rate,omitzero"`
	// Classes, if any, share K out to upstreams. Their Tokens are chosen by the state.
	Classes []Class `json:"classes,omitempty"`
}

// SetK changes the number of tokens of a pool, or of one of its upstreams, if it still is
// Was (0: whatever it is).
type SetK struct {
	Name string `json:"name"`
	// Upstream whose k it is, of a pool with classes.
	Upstream string `json:"upstream,omitempty"`
	K        int    `json:"k"`
	Was      int    `json:"was,omitempty"`
	// Epoch, in a pool with a rate, is the one in which all gateways divide the rate by K
	// or more. 0: they may not.
	Epoch uint64 `json:"epoch,omitempty"`
}

// SetServers says which servers an upstream's name has now, if the pool still is in that epoch.
type SetServers struct {
	Pool  string `json:"pool"`
	Epoch uint64 `json:"epoch"`
	// Name is the upstream as configured, Servers are the URLs of its servers.
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
	// K of each new one.
	K int `json:"k"`
}

// SetRate changes the rate of a pool.
type SetRate struct {
	Name string `json:"name"`
	Rate Rate   `json:"rate"`
}

// Recover begins a new epoch of a pool, if it still is in that one.
type Recover struct {
	Pool  string `json:"pool"`
	Epoch uint64 `json:"epoch"`
	// Spread: nothing is wrong, the free tokens are to be spread.
	Spread bool `json:"spread,omitempty"`
	// Whole: there are no more than K tokens in use.
	Whole bool `json:"whole,omitempty"`
}

// UseTickets notes that a pool gives out tickets of a time to live of up to TTL; 0:
// of any.
type UseTickets struct {
	Pool string        `json:"pool"`
	TTL  time.Duration `json:"ttl,omitempty"`
}

// Errors of commands.
var (
	// ErrCommand means that a command was refused; the view stays as it was.
	ErrCommand = errors.New("refused")
	// ErrConflict means that a value is no longer what the proposer took it for.
	ErrConflict = errors.New("changed by somebody else meanwhile")
	// ErrNewer means that something was written by a newer version of kgate.
	ErrNewer = errors.New("written by a newer version of kgate")
	// errOlder means that something was written by an older version of kgate
	// that this one does not read.
	errOlder = errors.New("written by an older version of kgate")
)

// Encode returns a command as an entry of the log.
func Encode(c Command) ([]byte, error) {
	c.Version = commandVersion
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return data, nil
}

// DecodeCommand reads an entry of the log.
func DecodeCommand(data []byte) (Command, error) {
	if len(data) > MaxCommand {
		return Command{}, fmt.Errorf("%w: a command of %d bytes", ErrCommand, len(data))
	}
	// The version first: a newer command may well have unknown fields.
	if err := checkVersion(data, "command version", oldestCommand, commandVersion); err != nil {
		return Command{}, err
	}
	var c Command
	if err := decodeStrict(data, &c); err != nil {
		return Command{}, fmt.Errorf("%w: command: %w", ErrCommand, err)
	}
	if c.Version < oldestCommand {
		return Command{}, fmt.Errorf("%w: command version %d", ErrCommand, c.Version)
	}
	if n := c.bodies(); n != 1 {
		return Command{}, fmt.Errorf("%w: a command with %d bodies", ErrCommand, n)
	}
	return c, nil
}

// checkVersion returns an error for what another version of kgate has written and this one
// does not read. What has no version is the decoder's to refuse.
func checkVersion(data []byte, what string, oldest, newest int) error {
	var version struct{ V, Format int }
	_ = json.Unmarshal(data, &version)
	switch has := max(version.V, version.Format); {
	case has > newest:
		return fmt.Errorf("%w: %s %d, this one knows %d", ErrNewer, what, has, newest)
	case has > 0 && has < oldest:
		return fmt.Errorf("%w: %s %d, this one reads %d and newer", errOlder, what, has, oldest)
	}
	return nil
}

// decodeStrict decodes one JSON value with no unknown fields and nothing
// behind it.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more data behind the value")
	}
	return nil
}

func checkText(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: %s is empty", ErrCommand, what)
	case len(text) > MaxText:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrCommand, what, len(text), MaxText)
	default:
		return nil
	}
}

// CheckK returns an error unless a pool may have k tokens.
func CheckK(k int) error {
	if k < 1 || k > kmutex.MaxK {
		return fmt.Errorf("%w: k is %d, it must be between 1 and %d", ErrCommand, k, kmutex.MaxK)
	}
	return nil
}

// Check returns an error if the command makes no sense whatever the view.
func (c Found) Check() error {
	err := checkText("the cluster id", c.Cluster)
	if c.Lease < minLease || c.Lease > maxLease {
		err = errors.Join(err, fmt.Errorf("%w: the lease is %v, it must be between %v and %v", ErrCommand, c.Lease, minLease, maxLease))
	}
	return err
}

// Check returns an error if the command makes no sense whatever the view.
func (c Join) Check() error {
	return errors.Join(
		checkText("the gateway's name", c.Name),
		checkText("the boot id", c.Boot),
		checkText("the peer address", c.PeerAddr),
		checkText("the server id", c.Server))
}

// Check returns an error if the command makes no sense whatever the view.
func (c Define) Check() error {
	errs := []error{checkText("the pool's name", c.Name), CheckK(c.K), c.Rate.Check(), c.checkClasses()}
	if c.Binding != admission.BindingEarly && c.Binding != admission.BindingLate {
		errs = append(errs, fmt.Errorf("%w: binding is %q, it must be %q or %q", ErrCommand, c.Binding, admission.BindingLate, admission.BindingEarly))
	}
	switch {
	case c.Reclaim != admission.ReclaimLease && c.Reclaim != admission.ReclaimHold:
		errs = append(errs, fmt.Errorf("%w: reclaim is %q, it must be %q or %q", ErrCommand, c.Reclaim, admission.ReclaimLease, admission.ReclaimHold))
	case c.Reclaim == admission.ReclaimHold && c.HoldMax <= 0:
		errs = append(errs, fmt.Errorf("%w: reclaim is %q, so a longest hold is needed", ErrCommand, c.Reclaim))
	case c.Reclaim == admission.ReclaimLease && c.HoldMax != 0:
		errs = append(errs, fmt.Errorf("%w: reclaim is %q, so a longest hold of %v has no meaning", ErrCommand, c.Reclaim, c.HoldMax))
	default:
	}
	return errors.Join(errs...)
}

// Check returns an error for a rate that is out of bounds.
func (r Rate) Check() error {
	if r.Down < 0 || r.Down > admission.MaxRate || r.Up < 0 || r.Up > admission.MaxRate {
		return fmt.Errorf("%w: the rate is %d down and %d up, each must be between 0 and %d bytes per second", ErrCommand, r.Down, r.Up, int64(admission.MaxRate))
	}
	return nil
}

// CheckParts reports a rate that is too small for so many tokens. It is asked where a change is
// proposed, as where a file is read; an agreed one is made whatever it is.
func (r Rate) CheckParts(k int) error {
	least := int64(k) * admission.LeastRate
	if r.Down > 0 && r.Down < least || r.Up > 0 && r.Up < least {
		return fmt.Errorf("%w: the rate is %d down and %d up, in bytes per second; with k = %d each must be 0 or at least %d, or k smaller",
			ErrCommand, r.Down, r.Up, k, least)
	}
	return nil
}

// checkClasses returns what is wrong with the classes of a new pool.
func (c Define) checkClasses() error {
	if c.Classes == nil {
		return nil
	}
	var errs []error
	total := 0
	for i, class := range c.Classes {
		errs = append(errs, checkText("an upstream's URL", class.Upstream))
		if class.Name != "" {
			errs = append(errs, checkText("an upstream's URL", class.Name))
		}
		if class.K < 1 || class.K > kmutex.MaxK || class.Tokens != nil {
			errs = append(errs, fmt.Errorf("%w: k of the upstream %s is %d, it must be between 1 and %d", ErrCommand, class.Upstream, class.K, kmutex.MaxK))
		}
		if slices.ContainsFunc(c.Classes[:i], func(other Class) bool { return other.Upstream == class.Upstream }) {
			errs = append(errs, fmt.Errorf("%w: the upstream %s is there twice", ErrCommand, class.Upstream))
		}
		total += class.K
	}
	switch {
	case len(c.Classes) > maxClasses:
		errs = append(errs, errTooMany)
	case total != c.K:
		errs = append(errs, fmt.Errorf("%w: k is %d, and that of all upstreams is %d", ErrCommand, c.K, total))
	case c.Binding == admission.BindingEarly:
		errs = append(errs, fmt.Errorf("%w: with early binding no upstream can have a k of its own: requests would be bound to one that may be down", ErrCommand))
	case c.Rate != Rate{}:
		errs = append(errs, errRateOfClasses)
	}
	return errors.Join(errs...)
}

var (
	errTooMany       = fmt.Errorf("%w: at most %d upstreams can have a k of their own", ErrCommand, maxClasses)
	errRateOfClasses = fmt.Errorf("%w: a pool with a rate cannot have upstreams with a k of their own", ErrCommand)
)
