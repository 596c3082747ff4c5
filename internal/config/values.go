package config

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

var (
	bindings = []admission.Binding{admission.BindingLate, admission.BindingEarly}
	reclaims = []admission.Reclaim{admission.ReclaimLease, admission.ReclaimHold}
)

// Role is what a gateway does in its cluster.
type Role string

// The roles.
const (
	// RoleGateway admits requests.
	RoleGateway Role = "gateway"
	// RoleWitness votes and serves nothing.
	RoleWitness Role = "witness"
)

var roles = []Role{RoleGateway, RoleWitness}

// Waiting is what happens to waiting requests when a gateway drains or stops.
type Waiting string

// What can happen to them.
const (
	// WaitingRefuse refuses them: they can wait at another gateway.
	WaitingRefuse Waiting = "refuse"
	// WaitingFinish serves them, as far as drain.timeout allows.
	WaitingFinish Waiting = "finish"
)

var waitings = []Waiting{WaitingRefuse, WaitingFinish}

// Order says which of a gateway's waiting requests is next.
type Order string

// The orders.
const (
	// OrderFIFO: the oldest.
	OrderFIFO Order = "fifo"
	// OrderFair: the oldest of each client in turn.
	OrderFair Order = "fair"
)

var orders = []Order{OrderFIFO, OrderFair}

// ProxyProtocol is the version of the PROXY header that an upstream gets.
type ProxyProtocol string

// The versions.
const (
	ProxyNone ProxyProtocol = "none"
	ProxyV1   ProxyProtocol = "v1"
	ProxyV2   ProxyProtocol = "v2"
)

var proxyProtocols = []ProxyProtocol{ProxyNone, ProxyV1, ProxyV2}

// ClientKey says what distinguishes clients.
type ClientKey struct {
	// Header is the header whose value does, in canonical form; empty: the client's address does.
	Header string
}

// String formats k as the file has it.
func (k ClientKey) String() string {
	if k.Header == "" {
		return "ip"
	}
	return "header:" + k.Header
}

// UnmarshalText reads ip or header:NAME.
func (k *ClientKey) UnmarshalText(text []byte) error {
	const hint = "write ip, or a header such as header:X-Api-Key"
	if string(text) == "ip" {
		*k = ClientKey{}
		return nil
	}
	name, ok := strings.CutPrefix(string(text), "header:")
	switch {
	case !ok:
		return problem(quote(string(text))+" cannot distinguish clients", hint)
	case !isHeaderName(name):
		return problem(quote(name)+" is not the name of a header", hint)
	}
	*k = ClientKey{Header: http.CanonicalHeaderKey(name)}
	return nil
}

// isHeaderName reports whether s is a token in the sense of RFC 9110.
func isHeaderName(s string) bool {
	return s != "" && len(s) <= 64 &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

// ClientWeight is the weight of one client.
type ClientWeight struct {
	Client string
	Weight float64
}

// String formats w as the file has it.
func (w ClientWeight) String() string {
	return w.Client + "=" + strconv.FormatFloat(w.Weight, 'g', -1, 64)
}

// UnmarshalText reads a client, = and a number.
func (w *ClientWeight) UnmarshalText(text []byte) error {
	const hint = `write a client, = and how many shares it has, such as "gold=3"`
	at := strings.LastIndexByte(string(text), '=')
	if at < 1 {
		return problem(quote(string(text))+" is not a client's weight", hint)
	}
	weight, err := strconv.ParseFloat(string(text[at+1:]), 64)
	if err != nil || !(weight >= 0.01 && weight <= 100) {
		return problem(quote(string(text))+" has no weight from 0.01 to 100", hint)
	}
	*w = ClientWeight{string(text[:at]), weight}
	return nil
}

// AutoDuration is a duration, or auto: derived from something else. Duration is then
// ignored.
type AutoDuration struct {
	Auto     bool
	Duration time.Duration
}

// String formats a as the file has it.
func (a AutoDuration) String() string {
	if a.Auto {
		return "auto"
	}
	return a.Duration.String()
}

// UnmarshalText reads auto or a duration.
func (a *AutoDuration) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*a = AutoDuration{Auto: true}
		return nil
	}
	d, err := parseDuration(string(text))
	if err != nil {
		return withHint(err, "; or write auto")
	}
	*a = AutoDuration{Duration: d}
	return nil
}

// parseDuration reads a duration with a unit.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, unitless := time.ParseDuration(s + "s"); unitless == nil {
		return 0, problem(fmt.Sprintf("%s has no unit", quote(s)), fmt.Sprintf("write %ss for seconds, or %sms, %sm", s, s, s))
	}
	if s == "" {
		return 0, problem("is empty", hintDuration)
	}
	return 0, problem(fmt.Sprintf("%s is not a duration", quote(s)), hintDuration)
}

const hintDuration = "write a number and a unit, such as 500ms, 60s, 5m or 1h30m"

// problemError is what is wrong with one value and what to write instead. The caller adds
// the place.
type problemError struct {
	wrong, hint string
}

func (p *problemError) Error() string { return p.wrong + "; " + p.hint }

func problem(wrong, hint string) error { return &problemError{wrong: wrong, hint: hint} }

// withHint adds more to the hint of a problem.
func withHint(err error, more string) error {
	var p *problemError
	if errors.As(err, &p) {
		return problem(p.wrong, p.hint+more)
	}
	return err
}
