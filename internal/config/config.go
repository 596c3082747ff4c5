package config

import (
	"net/netip"
	"net/url"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Config is the configuration of one gateway. Build one with [Load],
// [LoadWith], [Parse] or [Default]; it is not changed afterwards except by
// [Config.Apply] and [Config.Resolve]. Reading it is safe for concurrent use.
type Config struct {
	Node      Node      `yaml:"node"`
	Listen    Listen    `yaml:"listen"`
	Cluster   Cluster   `yaml:"cluster"`
	Pools     []Pool    `yaml:"pools"`
	Routes    []Route   `yaml:"routes"`
	Log       Log       `yaml:"log"`
	Telemetry Telemetry `yaml:"telemetry"`
	// TrustedProxies are the peers whose X-Forwarded-* headers are believed.
	// Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`

	src *source
}

// Node describes this gateway.
type Node struct {
	// Name of the gateway, unique in its cluster. Default: the host name.
	Name string `yaml:"name"`
	// DataDir keeps the agreed views, and tickets, over a restart. Empty: in
	// memory only.
	DataDir string `yaml:"data_dir"`
	// Advertise is the address, without a port, under which the other gateways
	// reach this one. Default: the host of listen.peer if that is one address,
	// else this machine's first private address.
	Advertise netip.Addr `yaml:"advertise"`
	// AdminTokenFile holds the token that changes over the admin address need, unless
	// that is a socket; the same on every gateway. One on each line: all are
	// accepted. It is read again when it changes.
	AdminTokenFile string `yaml:"admin_token_file"`
	// Drain says what becomes of waiting requests when the gateway is taken out:
	// refuse, so that they may wait at another gateway, or finish.
	Drain Drain `yaml:"drain"`
}

// Listen holds the addresses, each host:port, to listen on, and what clients'
// connections may take. An empty host is every address of the machine; port 0
// is any free port.
type Listen struct {
	// HTTP serves clients in the clear: HTTP/1.1 and HTTP/2 (h2c).
	HTTP string `yaml:"http"`
	// HTTPS serves clients over TLS: HTTP/1.1 and HTTP/2. Empty: none.
	HTTPS string `yaml:"https"`
	// TLS is the certificate for HTTPS.
	TLS ClientTLS `yaml:"tls"`
	// Admin serves status page, API, metrics and health; unix:/PATH is a socket, for
	// who may open its file. An address that other machines reach needs
	// node.admin_token_file.
	Admin string `yaml:"admin"`
	// Peer is for the other gateways, TCP.
	Peer string `yaml:"peer"`
	// Gossip is for serf, UDP and TCP.
	Gossip string `yaml:"gossip"`
	// ProxyProtocol are the peers whose connections must begin with a PROXY
	// header, version 1 or 2; others must not send one. Default: none.
	ProxyProtocol []netip.Prefix `yaml:"proxy_protocol"`
	// HeaderTimeout bounds the reading of a request's header.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// IdleTimeout is how long a client's connection is kept without a request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxHeaderBytes is the largest header of a request.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
	// MaxConnections is how many clients' connections are open at once; the next
	// one waits. 0: half as many as the process may have file descriptors.
	MaxConnections int `yaml:"max_connections"`
}

// ClientTLS names the PEM files of listen.https. They are read again when they
// change.
type ClientTLS struct {
	Cert string `yaml:"cert"` // the certificate, and those between it and the root
	Key  string `yaml:"key"`  // its key
}

// Enabled reports whether any of the files is named.
func (t ClientTLS) Enabled() bool { return t.Cert != "" || t.Key != "" }

// Cluster says how this gateway finds the others and how they guard what they
// say to each other.
type Cluster struct {
	// Join are gossip addresses, host:port, of gateways to join; any one
	// member is enough.
	Join []string `yaml:"join"`
	// BootstrapExpect is the number of gateways that found the cluster
	// together. 0 or 1: this one founds it alone or, if it has others to join,
	// does not found one at all.
	BootstrapExpect int `yaml:"bootstrap_expect"`
	// Lease is how long a gateway may have requests in flight without hearing
	// from the cluster; at least one second. The same on every gateway: the
	// cluster agrees on it when it is founded. Round trips between gateways may
	// take a tenth of it.
	Lease time.Duration `yaml:"lease"`
	// Replicas is the number of ring successors that keep a gateway's tickets;
	// with 0 they are lost with it.
	Replicas int `yaml:"replicas"`
	// KeyFile holds the cluster's key, which guards everything that gateways
	// say to each other. The same file on every gateway. One key on each line:
	// the first is used, all are accepted. It is read again when it changes.
	KeyFile string `yaml:"key_file"`
	// GossipKey encrypts gossip, beside tls and in place of key_file.
	GossipKey Key `yaml:"gossip_key"`
	// GossipKeyFile is a file that holds the gossip key, in its place. One key
	// on each line: the first encrypts, all decrypt. It is read again when it
	// changes.
	GossipKeyFile string `yaml:"gossip_key_file"`
	// TLS between gateways, mutual, with certificates of your own, in place of
	// key_file. All three files, or none.
	TLS PeerTLS `yaml:"tls"`
	// Insecure lets the gateways talk in the clear on addresses that other
	// machines reach. Whoever reaches the peer port can then change k and speak
	// as a gateway.
	Insecure bool `yaml:"insecure"`
}

// Guarded reports whether strangers are kept from the peer and gossip ports.
func (c Cluster) Guarded() bool {
	return c.KeyFile != "" || c.TLS.Enabled() && (c.GossipKeyFile != "" || len(c.GossipKey) > 0)
}

// PeerTLS names the PEM files of mutual TLS between gateways.
type PeerTLS struct {
	CA   string `yaml:"ca"`   // who signs the certificates of the cluster
	Cert string `yaml:"cert"` // this gateway's certificate
	Key  string `yaml:"key"`  // its key
	// Names are the gateways that may take part, as their certificates have
	// them. Empty: every name that the authority has signed.
	Names []string `yaml:"names"`
}

// Enabled reports whether gateways talk TLS to each other.
func (t PeerTLS) Enabled() bool { return t.CA != "" || t.Cert != "" || t.Key != "" }

// Pool is one critical section: at most K of its requests are in flight over
// all gateways together.
type Pool struct {
	// Name of the pool, the same on every gateway.
	Name string `yaml:"name"`
	// K is what a new pool starts with; later the cluster's agreed k rules.
	K int `yaml:"k"`
	// Binding says when the coordinator ties a request to a token: late, when one
	// is free for it, or early, when it arrives, as the published algorithm does.
	Binding admission.Binding `yaml:"binding"`
	// AskInterval is how finely gateways interleave in the line; auto is four
	// times the number of gateways times the one-way delay between them.
	AskInterval AskInterval `yaml:"ask_interval"`
	// Upstreams serve the pool's requests: http, https or h2c (HTTP/2 in the
	// clear), with an optional path in front of the request's. Several: least
	// in flight first.
	Upstreams []*url.URL `yaml:"upstreams"`
	// Health says when an upstream is passed over.
	Health Health `yaml:"health"`
	Queue  Queue  `yaml:"queue"`
	Hold   Hold   `yaml:"hold"`
	// Reclaim says when a lost gateway's slots come back: with the end of its
	// lease, or not before hold.max has passed, either. With hold, the cluster
	// agrees on hold.max with the pool, and no gateway may have a longer one.
	Reclaim   admission.Reclaim `yaml:"reclaim"`
	Transport Transport         `yaml:"transport"`
	// Fence sends the header Kgate-Fence to the upstreams: pool/founded/epoch/serial,
	// no two the same, so that they can tell what comes too late.
	Fence bool `yaml:"fence"`
	// Tickets opens the ticket API for this pool on the client address. There a
	// ticket lives for a minute at most without a sign of its holder, and has its
	// slot for hold.max at most.
	Tickets bool `yaml:"tickets"`
}

// Queue bounds the waiters of one pool on this gateway.
type Queue struct {
	// Timeout is the longest wait for a slot; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// Limit is how many requests wait at most; one more is refused at once.
	Limit int `yaml:"limit"`
	// Order says who of this gateway's waiters is next: fifo, who came first, or
	// fair, the clients in turn.
	Order Order `yaml:"order"`
	// PerClient bounds what one client takes of the line.
	PerClient PerClient `yaml:"per_client"`
}

// PerClient says who one client is, and what it may have at this gateway at a time.
type PerClient struct {
	// Key tells clients apart, for these limits and for the order fair: ip is the
	// client's address.
	Key ClientKey `yaml:"key"`
	// Limit is how many requests of one client wait at this gateway at most;
	// one more is refused at once, with status 429. 0: no limit.
	Limit int `yaml:"limit"`
	// InFlight is how many slots one client has through this gateway at most; its
	// other requests wait, and let those of others pass. 0: no limit.
	InFlight int `yaml:"in_flight"`
	// Tickets is how many tickets one client has at most that this gateway has given
	// out on the client address, waiting or with a slot; one more is refused with
	// status 429. 0: no limit.
	Tickets int `yaml:"tickets"`
}

// Health says when one of a pool's upstreams is passed over. Refused and broken
// connections count as failures, too, with active checks and without.
type Health struct {
	// Path is asked for with GET; a status of 200 to 399 is good. Empty: no
	// active checks.
	Path string `yaml:"path"`
	// Interval is the time between two checks; without active checks, the time
	// after which an unhealthy upstream is tried again.
	Interval time.Duration `yaml:"interval"`
	// Timeout of a check; more than zero.
	Timeout time.Duration `yaml:"timeout"`
	// UnhealthyAfter is how many failures in a row take an upstream out: of checks, or
	// of requests if there are no checks.
	UnhealthyAfter int `yaml:"unhealthy_after"`
	// HealthyAfter is how many good checks in a row bring it back.
	HealthyAfter int `yaml:"healthy_after"`
}

// Hold bounds how long one request keeps its slot; then it is broken off. Zero
// is no bound.
type Hold struct {
	// Max is the longest that a request takes, however busy it is.
	Max time.Duration `yaml:"max"`
	// Idle is the longest that no byte of it moves in either direction: the
	// upstream is silent, or the client neither reads nor sends. Upgraded
	// connections (WebSocket) count too.
	Idle time.Duration `yaml:"idle"`
	// MinUpload is how many bytes per second a client's request body must at
	// least come with, over the length of hold.idle, or 10 s without it. 0: no
	// bound.
	MinUpload int `yaml:"min_upload"`
}

// Transport says how this gateway talks to a pool's upstreams.
type Transport struct {
	// DialTimeout bounds the connection's set-up; more than zero.
	DialTimeout time.Duration `yaml:"dial_timeout"`
	// ResponseHeaderTimeout bounds the time to the answer's header; zero is
	// no bound.
	ResponseHeaderTimeout time.Duration `yaml:"response_header_timeout"`
	// IdleTimeout is how long a connection is kept that no request uses; more
	// than zero. Make it shorter than the upstream's own.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	TLS         UpstreamTLS   `yaml:"tls"`
}

// UpstreamTLS says which upstream certificates to believe.
type UpstreamTLS struct {
	// CA is a PEM file of roots. Empty: the system's.
	CA string `yaml:"ca"`
	// InsecureSkipVerify believes every certificate. For tests only.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// Route leads requests to a pool. The first route that matches wins; a
// request that none matches gets 404.
type Route struct {
	// Pool that admits the requests. Empty: they are proxied to upstreams
	// without admission.
	Pool  string `yaml:"pool"`
	Match Match  `yaml:"match"`
	// StripPrefix is taken off the path before it goes upstream.
	StripPrefix string `yaml:"strip_prefix"`
	// Upstreams of a route without a pool.
	Upstreams []*url.URL `yaml:"upstreams"`
}

// Match selects requests; what is empty matches all.
type Match struct {
	Host       string   `yaml:"host"`        // without port; case does not matter; *.example.com is every name below it
	PathPrefix string   `yaml:"path_prefix"` // of the decoded path; runs of slashes count as one
	Methods    []string `yaml:"methods"`     // of which one must match
}

// all reports whether m selects every request.
func (m Match) all() bool {
	return m.Host == "" && (m.PathPrefix == "" || m.PathPrefix == "/") && len(m.Methods) == 0
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // the least grave lines that are written
	Format string `yaml:"format"` // how a line is written
	Access bool   `yaml:"access"` // one line per request
	// AccessFormat is how that line is written: structured, as the other lines,
	// or, on standard output, in the common or combined format of web servers.
	AccessFormat AccessFormat `yaml:"access_format"`
}

// Telemetry says where traces go.
type Telemetry struct {
	// OTLPEndpoint is the URL of an OpenTelemetry collector that takes OTLP over
	// HTTP, such as http://127.0.0.1:4318. Empty: no traces.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// SampleRatio is the share of requests to trace, 0 to 1. It is for those
	// that bring no trace context: who began a trace has decided.
	SampleRatio float64 `yaml:"sample_ratio"`
}
