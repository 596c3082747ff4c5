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
	// K is the capacity of a new pool. Later the k that the cluster has agreed on counts.
	K int `yaml:"k"`
	// Binding says when the coordinator binds a request to a token: late, when a token is
	// free for it, or early, when the request arrives, as in the published algorithm.
	Binding admission.Binding `yaml:"binding"`
	// AskInterval is the least time between two asks of one gateway for places in line.
	// Requests that arrive at different gateways less than that apart may change places.
	// auto is four times the number of gateways times the one-way delay between them.
	AskInterval AutoDuration `yaml:"ask_interval"`
	// Upstreams serve the pool's requests: http, https or h2c (HTTP/2 without TLS), with an
	// optional path that goes before the request's. An upstream tcp://host:port serves its
	// TCP connections (listen.tcp). unix:/PATH is a socket on this machine that takes
	// HTTP/1.1. A host that begins with an underscore, as in http://_http._tcp.example.com,
	// is the name of SRV records: all their servers serve. If there are several upstreams,
	// the one with the fewest requests in flight for its weight is next; #weight=3 at the
	// end gives an upstream three times the share of one without. None: the pool gives out
	// slots, as tickets, and proxies nothing.
	Upstreams []*url.URL `yaml:"upstreams"`
	// Backup are upstreams that are used only while no other upstream can take the request or
	// connection: each is unhealthy, or a connection to it fails at that moment.
	Backup []*url.URL `yaml:"backup"`
	// Health says when an upstream is unhealthy.
	Health Health `yaml:"health"`
	Queue  Queue  `yaml:"queue"`
	Hold   Hold   `yaml:"hold"`
	Rate   Rates  `yaml:"rate"`
	// Reclaim says when the slots of a lost gateway come back: with lease when its lease
	// has ended; with hold not before hold.max has passed, too. With hold, the cluster
	// agrees on the pool's hold.max, and no gateway may have a longer one.
	Reclaim   admission.Reclaim `yaml:"reclaim"`
	Transport Transport         `yaml:"transport"`
	// Fence sends the header Kgate-Fence to the upstreams: pool/founded/epoch/serial. No
	// two requests have the same, so an upstream can recognize one that comes too late.
	Fence bool `yaml:"fence"`
	// Tickets opens the ticket API of this pool on the client address. A ticket from there
	// lives for at most a minute without a sign of its holder, and keeps its slot for at
	// most hold.max.
	Tickets bool `yaml:"tickets"`
	// TicketTTL is the longest ttl of a ticket that this gateway issues, 1 second to 10 minutes.
	// After some losses slots are missing for the longest ttl of the pool's tickets and a lease.
	TicketTTL time.Duration `yaml:"ticket_ttl"`
}

// Queue limits the requests of one pool that wait at this gateway.
type Queue struct {
	// Timeout is the longest wait for a slot; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// Limit is how many requests may wait; one more is refused at once.
	Limit int `yaml:"limit"`
	// Order says which of this gateway's waiting requests is next: with fifo the oldest,
	// with fair the oldest of the client whose turn it is. The turns are those of one
	// gateway: a client that asks at three gateways has three.
	Order Order `yaml:"order"`
	// PerClient limits the share of one client.
	PerClient PerClient `yaml:"per_client"`
	Page      Page      `yaml:"page"`
}

// Page is an HTML page for browsers that have to wait, for requests that a person looks at:
// GET with Accept: text/html. It shows the place in line and loads the answer when it is
// there.
type Page struct {
	Enabled bool `yaml:"enabled"` // whether there is such a page
	// Keep is how long a place is kept after the page was closed, 10 seconds to 10 minutes.
	// A slot may be held just as long for a browser that has gone.
	Keep time.Duration `yaml:"keep"`
	// Template is a file with a page of your own. Empty: the built-in page.
	Template string `yaml:"template"`
}

// PerClient says what one client is, and what it may have at this gateway at a time.
type PerClient struct {
	// Key distinguishes clients, for these limits and for the order fair: ip is the
	// client's address, header:NAME the value of a header.
	Key ClientKey `yaml:"key"`
	// Limit is how many requests of one client may wait at this gateway; one more is
	// refused at once, with status 429. 0: no limit.
	Limit int `yaml:"limit"`
	// InFlight is how many slots one client may have through this gateway. Its other
	// requests wait, and requests of other clients pass them. 0: no limit.
	InFlight int `yaml:"in_flight"`
	// Tickets is how many tickets one client may have from this gateway's client address,
	// waiting or with a slot; one more is refused with status 429. 0: no limit.
	Tickets int `yaml:"tickets"`
}

// Health says when one of a pool's upstreams is unhealthy: then it gets no requests while
// another one can serve them. Refused and broken connections count as failures, with active
// checks and without.
type Health struct {
	// Path is requested with GET by active checks; a status of 200 to 399 is good. Empty:
	// no active checks.
	Path string `yaml:"path"`
	// Interval is the time between two checks. Without active checks it is the time after
	// which an unhealthy upstream is tried again.
	Interval time.Duration `yaml:"interval"`
	// Timeout of a check; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// UnhealthyAfter is how many failures in a row make an upstream unhealthy: failures of
	// checks, or of requests if there are no checks.
	UnhealthyAfter int `yaml:"unhealthy_after"`
	// HealthyAfter is how many good checks in a row make it healthy again.
	HealthyAfter int `yaml:"healthy_after"`
	// SlowStart is how long an upstream that is healthy again, or new beside others, takes
	// to reach its whole share; it begins with a tenth. 0: no time.
	SlowStart time.Duration `yaml:"slow_start"`
}

// Hold limits how long one request keeps its slot; then the request is aborted. 0: no
// limit.
type Hold struct {
	// Max is how long a request may take, even if bytes move.
	Max time.Duration `yaml:"max"`
	// Idle is how long a request may go without a byte in either direction: the upstream is
	// silent, or the client neither reads nor sends. Upgraded connections (WebSocket)
	// count, too. In a pool with tcp upstreams only the default is 10m.
	Idle time.Duration `yaml:"idle"`
	// MinUpload is how many bytes per second of a request's body a client must send, on
	// average over hold.idle, or over 10 s without it. 0: no limit.
	MinUpload int `yaml:"min_upload"`
	// MinDownload is how many bytes per second of an answer a client must read, over the
	// same time. Time in which the upstream sends too little does not count. 0: no limit.
	MinDownload int `yaml:"min_download"`
}

// Transport says how this gateway connects to a pool's upstreams.
type Transport struct {
	// DialTimeout is how long it may take to open a connection; more than zero.
	DialTimeout time.Duration `yaml:"dial_timeout"`
	// ResponseHeaderTimeout is how long the upstream may take to send the answer's header;
	// 0: no limit. The default is less if hold.idle is: five sixths of that.
	ResponseHeaderTimeout time.Duration `yaml:"response_header_timeout"`
	// IdleTimeout is how long an unused connection stays open; more than zero. Make it
	// shorter than the upstream's own.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Resolve is how long the addresses of an upstream's name, or its SRV records, count.
	// Then the gateway looks the name up again, and sends no further request over
	// connections to addresses that the name no longer has. While the look-up fails or
	// finds nothing, the known addresses and servers stay in use. An SRV record with the
	// target "." says that there is no service: its servers get no further request, at
	// once. 0: only new connections follow a change, and SRV records are looked up once.
	Resolve time.Duration `yaml:"resolve"`
	// Host is the Host that the requests are sent with. Empty: the client's.
	Host string      `yaml:"host"`
	TLS  UpstreamTLS `yaml:"tls"`
	// ProxyProtocol is the version of the PROXY header, which names the client, at the
	// beginning of each connection to a tcp upstream: v1, v2 or none.
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
	if p.K == 0 && !v.src.given(key+".k") {
		v.wrong(key+".k", "is missing", "write how many requests the upstream may get at once, such as k: 8")
	} else {
		v.whole(key+".k", p.K, 1, kmutex.MaxK)
	}
	oneOf(v, key+".binding", p.Binding, bindings)
	oneOf(v, key+".reclaim", p.Reclaim, reclaims)
	v.proxyProtocol(key, p)
	if !p.AskInterval.Auto {
		v.duration(key+".ask_interval", p.AskInterval.Duration, 0)
	}
	v.upstreams(key+".upstreams", p.Upstreams, poolSchemes)
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
	v.upstreams(key+".backup", p.Backup, poolSchemes)
	for i, b := range p.Backup {
		at := fmt.Sprintf("%s.backup[%d]", key, i)
		if b == nil || v.src.broken(key+".upstreams") {
			continue
		}
		if slices.ContainsFunc(p.Upstreams, func(u *url.URL) bool { return u != nil && server(u) == server(b) }) {
			v.wrong(at, quote(server(b))+" is among the upstreams, too", "keep one of the two")
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
	if name := q.PerClient.Key.Header; name != "" && !isHeaderName(name) {
		v.wrong(key+".per_client.key", quote(name)+" is not the name of a header", "write a header such as header:X-Api-Key")
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
	v.whole(key+".healthy_after", h.HealthyAfter, 1, 1000)
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
