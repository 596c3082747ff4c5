package config

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// The options of a pool: what the file calls them, their defaults, and what is wrong
// with them.

// Pool is one critical section: at most K of its requests are in flight over
// all gateways together.
type Pool struct {
	// Name of the pool, the same on every gateway.
	Name string `yaml:"name"`
	// K is the capacity of a new pool. Later the k that the cluster has agreed on counts. Where
	// upstreams have a k of their own it is their sum, and must not be written.
	K int `yaml:"k"`
	// Binding is when a request is bound to a token: late, when one is free for it, or
	// early, when the request arrives, as in the published algorithm.
	Binding admission.Binding `yaml:"binding"`
	// Upstreams serve the pool: http, https or h2c (HTTP/2 in the clear), with an
	// optional path that goes before the request's; tcp://host:port for listen.tcp;
	// unix:/PATH, HTTP/1.1; http://_http._tcp.example.com, which names SRV records. The one
	// with the fewest requests in flight for its weight (#weight=3) is next. {url: URL, k: 2}, for
	// all or none: it gets at most 2 at once, over all gateways, until the cluster agrees on
	// another k. {url: URL, k_each: 2}: so does each server that the name has. No upstreams: the
	// pool gives out slots, as tickets, and proxies nothing.
	Upstreams []*url.URL `yaml:"upstreams"`
	// Backup are upstreams for when no other one can take the request or connection.
	Backup []*url.URL `yaml:"backup"`
	// Health says when an upstream is unhealthy.
	Health Health `yaml:"health"`
	Queue  Queue  `yaml:"queue"`
	Hold   Hold   `yaml:"hold"`
	Rate   Rates  `yaml:"rate"`
	// Reclaim says when the slots of a lost gateway come back: with its lease; or with
	// hold not before hold.max has passed, too, which is then agreed on.
	Reclaim   admission.Reclaim `yaml:"reclaim"`
	Transport Transport         `yaml:"transport"`
	// Fence sends Kgate-Fence to the upstreams, which no two requests have alike:
	// pool/founded/epoch/serial.
	Fence bool `yaml:"fence"`
	// Tickets opens the pool's ticket API on the client address. A ticket lives for at most
	// ticket_ttl without a sign of its holder, and holds its slot for at most hold.max.
	Tickets bool `yaml:"tickets"`
	// TicketTTL is the longest ttl of a ticket, 1 s to 10 m: for so long, and a lease,
	// slots are missing after some losses.
	TicketTTL time.Duration `yaml:"ticket_ttl"`
}

// Queue limits the requests of one pool that wait at this gateway.
type Queue struct {
	// Timeout is the longest wait for a slot; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// Limit is how many requests may wait; one more is refused at once.
	Limit int `yaml:"limit"`
	// Order says which request is next: the oldest, or with fair the oldest of a client whose
	// turn it is. A client's share of the slots counts over all gateways.
	Order Order `yaml:"order"`
	// Weights are how many shares clients have in the order fair, each "CLIENT=SHARES", with what
	// per_client.key says; others have 1. The same on every gateway.
	Weights []ClientWeight `yaml:"weights"`
	// PerClient limits the share of one client.
	PerClient PerClient `yaml:"per_client"`
	Page      Page      `yaml:"page"`
}

// Page is for browsers that have to wait (GET with Accept: text/html): it shows the
// place in line and loads the answer in its turn.
type Page struct {
	Enabled bool `yaml:"enabled"` // whether there is such a page
	// Keep is how long a place is kept after the page was closed, 10 s to 10 m; a slot
	// may be held as long for nobody.
	Keep time.Duration `yaml:"keep"`
	// Template is a file with a page of your own. Empty: the built-in page.
	Template string `yaml:"template"`
}

// PerClient says what one client is, and what it may have at this gateway at a time.
type PerClient struct {
	// Key is what one client is, here and for the order fair: its address, or the value
	// of a header (header:NAME).
	Key ClientKey `yaml:"key"`
	// Limit is how many requests of one client may wait; one more gets 429. 0: no limit.
	Limit int `yaml:"limit"`
	// InFlight is how many slots one client may have through this gateway; others pass
	// its further requests. 0: no limit.
	InFlight int `yaml:"in_flight"`
	// Tickets is how many tickets one client may have from this client address; one more
	// gets 429. 0: no limit.
	Tickets int `yaml:"tickets"`
}

// Health says when an upstream is unhealthy: it gets no requests while another can
// serve them. Refused and broken connections count as failures.
type Health struct {
	// Path is requested with GET by active checks; a status of 200 to 399 is good. Empty:
	// no active checks.
	Path string `yaml:"path"`
	// Interval is the time between two checks; without checks, until an unhealthy
	// upstream is tried again.
	Interval time.Duration `yaml:"interval"`
	// Timeout of a check; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// UnhealthyAfter is how many failures in a row, of checks, or of requests without
	// checks.
	UnhealthyAfter int `yaml:"unhealthy_after"`
	// SlowStart is how long an upstream that is healthy again, or new beside others,
	// takes to its whole share, from a tenth.
	SlowStart time.Duration `yaml:"slow_start"`
}

// Hold limits how long one request keeps its slot; then the request is aborted. 0: no
// limit.
type Hold struct {
	// Max is how long a request may take, even if bytes move.
	Max time.Duration `yaml:"max"`
	// Idle is how long no byte may move in either direction, also of upgraded
	// connections. In a pool with tcp upstreams only the default is 10m.
	Idle time.Duration `yaml:"idle"`
	// MinUpload is how many bytes per second of a body a client must send, on average
	// over hold.idle, or 10 s without it. 0: no limit.
	MinUpload int `yaml:"min_upload"`
	// MinDownload is how many bytes per second of an answer a client must read; time in
	// which the upstream sends too little does not count. 0: no limit.
	MinDownload int `yaml:"min_download"`
}

// Transport says how this gateway connects to a pool's upstreams.
type Transport struct {
	// DialTimeout is how long it may take to open a connection; more than zero.
	DialTimeout time.Duration `yaml:"dial_timeout"`
	// ResponseHeaderTimeout is how long the upstream may take to send the answer's
	// header; 0: no limit. The default is at most five sixths of hold.idle.
	ResponseHeaderTimeout time.Duration `yaml:"response_header_timeout"`
	// IdleTimeout is how long an unused connection stays open: shorter than the
	// upstream's own.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Resolve is how long the addresses of an upstream's name, or its SRV records, count
	// before the next look-up. Connections to addresses that are gone get no further
	// request. If it fails, what was known stays. 0: only new connections follow a
	// change, and SRV records are looked up once.
	Resolve time.Duration `yaml:"resolve"`
	// Host is the Host that the requests are sent with. Empty: the client's.
	Host string      `yaml:"host"`
	TLS  UpstreamTLS `yaml:"tls"`
	// ProxyProtocol is the version of the PROXY header to tcp upstreams.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`
}

// UpstreamTLS says which certificates of upstreams are trusted.
type UpstreamTLS struct {
	// CA is a PEM file of root certificates. Empty: the system's.
	CA string `yaml:"ca"`
	// InsecureSkipVerify trusts every certificate. For tests only.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

func (v *validator) pool(key string, p Pool) {
	if p.Name == "" {
		v.wrong(key+".name", "is missing", "write a name, such as downloads")
	} else {
		v.name(key+".name", p.Name, admission.IsPoolName, "write 1 to 64 of a-z, 0-9, - _ and .")
	}
	v.shares(key, p)
	if p.K == 0 && !v.src.given(key+".k") && !slices.Contains(p.Upstreams, nil) { // one of these may have had it
		v.wrong(key+".k", "is missing", "write how many requests the upstream may get at once, such as k: 8")
	} else {
		v.whole(key+".k", p.K, 1, kmutex.MaxK)
	}
	oneOf(v, key+".binding", p.Binding, bindings)
	oneOf(v, key+".reclaim", p.Reclaim, reclaims)
	v.proxyProtocol(key, p)
	v.upstreams(key+".upstreams", p.Upstreams)
	v.backup(key, p)
	v.health(key+".health", p.Health)
	v.queue(key+".queue", p.Queue)
	v.between(key+".ticket_ttl", p.TicketTTL, admission.MinTTL, admission.MaxTTL)
	v.page(key+".queue.page", p)
	v.duration(key+".hold.max", p.Hold.Max, 0)
	v.duration(key+".hold.idle", p.Hold.Idle, 0)
	v.whole(key+".hold.min_upload", p.Hold.MinUpload, 0, math.MaxInt32)
	v.whole(key+".hold.min_download", p.Hold.MinDownload, 0, math.MaxInt32)
	v.rates(key+".rate", p)
	if p.Reclaim == admission.ReclaimHold && p.Hold.Max == 0 {
		v.wrong(key+".reclaim", "hold needs a bound on the hold", "write hold.max, or reclaim: lease")
	}
	v.silence(key, p)
	v.duration(key+".transport.dial_timeout", p.Transport.DialTimeout, 1)
	v.duration(key+".transport.response_header_timeout", p.Transport.ResponseHeaderTimeout, 0)
	v.duration(key+".transport.idle_timeout", p.Transport.IdleTimeout, 1)
	v.duration(key+".transport.resolve", p.Transport.Resolve, 0)
	if h := p.Transport.Host; h != "" && !isHost(h) {
		if wrong, _ := checkHostPort(h, true); wrong != "" {
			v.wrong(key+".transport.host", quote(h)+" is not a host", "write a name, such as files.example.com, or host:port")
		}
	}
	if t := p.Transport.TLS; t.CA != "" && t.InsecureSkipVerify {
		v.wrong(key+".transport.tls.insecure_skip_verify", "makes tls.ca useless: every certificate is believed", "write only one of the two")
	}
}

func (v *validator) proxyProtocol(key string, p Pool) {
	at := key + ".transport.proxy_protocol"
	oneOf(v, at, p.Transport.ProxyProtocol, proxyProtocols)
	if v.src.given(at) && p.Transport.ProxyProtocol != ProxyNone && !p.serves(true) {
		v.wrong(at, "is for tcp upstreams, and there is none", "remove it; http upstreams read X-Forwarded-For")
	}
}

// backup checks the upstreams for want of others.
func (v *validator) backup(key string, p Pool) {
	v.upstreams(key+".backup", p.Backup)
	for i, b := range p.Backup {
		if b == nil { // it could not be read
			continue
		}
		at := fmt.Sprintf("%s.backup[%d]", key, i)
		if isK(b.Fragment) {
			v.wrong(at, "has a k of its own, as only upstreams have", "write the URL alone")
		}
		if v.src.broken(key + ".upstreams") {
			continue
		}
		if slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u != nil && admission.UpstreamServer(u) == admission.UpstreamServer(b) }) {
			v.wrong(at, quote(admission.UpstreamURL(b))+" is among the upstreams, too", "keep one of the two")
		}
		if !p.serves(b.Scheme == schemeTCP) {
			v.wrong(at, "has no upstream to stand in for", "write an upstream of the same kind, http or tcp, under upstreams")
		}
	}
}

// serves reports whether the pool has an upstream for TCP connections, or one for
// requests. One that cannot be read may be either.
func (p Pool) serves(connections bool) bool {
	return slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u == nil || (u.Scheme == schemeTCP) == connections })
}

func (v *validator) queue(key string, q Queue) {
	v.duration(key+".timeout", q.Timeout, 1)
	v.whole(key+".limit", q.Limit, 1, math.MaxInt32)
	oneOf(v, key+".order", q.Order, orders)
	for i, w := range q.Weights {
		if slices.ContainsFunc(q.Weights[:i], func(other ClientWeight) bool { return other.Client == w.Client }) {
			v.wrong(fmt.Sprintf("%s.weights[%d]", key, i), quote(w.Client)+" is listed twice", "keep one of the two")
		}
	}
	if len(q.Weights) > 0 && q.Order != OrderFair {
		v.wrong(key+".weights", "has no effect: the order is not fair", "write order: fair beside it, or remove it")
	}
	v.whole(key+".per_client.limit", q.PerClient.Limit, 0, math.MaxInt32)
	v.whole(key+".per_client.in_flight", q.PerClient.InFlight, 0, math.MaxInt32)
	v.whole(key+".per_client.tickets", q.PerClient.Tickets, 0, math.MaxInt32)
}

func (v *validator) page(key string, p Pool) {
	const shortest, longest = 10 * time.Second, 10 * time.Minute
	page := p.Queue.Page
	v.between(key+".keep", page.Keep, shortest, longest)
	switch {
	case page.Enabled && page.Keep > p.TicketTTL:
		v.wrong(key+".keep", showDuration(page.Keep)+" is longer than the pool's tickets live", "write ticket_ttl: "+showDuration(page.Keep)+" under the pool, too, or less here")
	case !page.Enabled && page.Template != "":
		v.wrong(key+".template", "has no effect: the page is not enabled", "write enabled: true beside it, or remove it")
	case page.Enabled && len(p.Upstreams) > 0 && !p.serves(false):
		v.wrong(key+".enabled", "is for HTTP requests, and all upstreams are for TCP connections", "remove it")
	}
}

func (v *validator) between(key string, d, least, most time.Duration) {
	if d < least || d > most {
		v.wrong(key, showDuration(d)+" is out of range", fmt.Sprintf("write a duration from %s to %s", showDuration(least), showDuration(most)))
	}
}

func (v *validator) health(key string, h Health) {
	if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
		v.wrong(key+".path", quote(h.Path)+" does not begin with /", "write "+quote("/"+h.Path))
	}
	v.duration(key+".interval", h.Interval, 100*time.Millisecond)
	v.duration(key+".timeout", h.Timeout, 1)
	v.whole(key+".unhealthy_after", h.UnhealthyAfter, 1, 1000)
	v.duration(key+".slow_start", h.SlowStart, 0)
}

// silence checks that hold.idle lets an upstream think for as long as the file
// says that it may.
func (v *validator) silence(key string, p Pool) {
	header := key + ".transport.response_header_timeout"
	if !v.src.given(header) || p.Hold.Idle <= 0 || v.src.broken(key+".hold.idle") {
		return
	}
	if t := p.Transport.ResponseHeaderTimeout; t == 0 || t > p.Hold.Idle {
		v.wrong(header, fmt.Sprintf("is never reached: hold.idle ends the request after %v without a byte", p.Hold.Idle), "write hold: {idle: "+t.String()+"}, too, or more")
	}
}
