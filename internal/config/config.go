package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Config is the configuration of one gateway. Build one with
// [LoadWith], [Parse] or [Default]; it is not changed afterwards except by
// [Config.Resolve]. Reading it is safe for concurrent use.
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
	// RequestIDHeader is the header by which requests have an id, such as
	// X-Request-ID. A client's id is kept if it is at most 128 letters, digits and
	// -_.~:/+=@; other requests get a random UUID. The upstream and the client get the
	// id in that header; the access log, traces and the gateway's own errors have it,
	// too. Empty: requests have no id.
	RequestIDHeader string `yaml:"request_id_header"`
	// ErrorPages are shown to people in place of the gateway's own text.
	ErrorPages []ErrorPage `yaml:"error_pages"`

	src *source
}

// Node describes this gateway.
type Node struct {
	// Name of the gateway, unique in its cluster. Default: the host name.
	Name string `yaml:"name"`
	// Role of the gateway. A witness votes in the cluster and serves nothing: it has
	// no pools, and listens for other gateways and operators only. With one, two
	// gateways survive the loss of any of the three.
	Role Role `yaml:"role"`
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
	// HTTPSOnly sends clients of http to https, with status 308. Those of a proxy in
	// trusted_proxies are served if X-Forwarded-Proto says that they use https.
	HTTPSOnly bool `yaml:"https_only"`
	// HTTPSPort is the port that they are sent to. 0: that of https.
	HTTPSPort int `yaml:"https_port"`
	// HSTS tells clients to use https from then on.
	HSTS HSTS `yaml:"hsts"`
	// TLS has the certificates for HTTPS.
	TLS ClientTLS `yaml:"tls"`
	// Allow are the networks whose clients http and https serve; others get 403. A
	// client behind trusted_proxies is known by X-Forwarded-For. Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients get 403, even those that allow has.
	Deny []netip.Prefix `yaml:"deny"`
	// Admin serves status page, API, metrics and health; unix:/PATH is a socket, for
	// who may open its file. An address that other machines reach needs
	// node.admin_token_file.
	Admin string `yaml:"admin"`
	// TCP serves clients of other protocols.
	TCP []Listener `yaml:"tcp"`
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
	// one waits. 0: 7/16 as many as the process may have file descriptors.
	MaxConnections int `yaml:"max_connections"`
}

// Listener leads TCP connections to a pool: each takes one slot for as long as it
// lasts. A client that is connected and hears nothing waits in line.
type Listener struct {
	Addr string `yaml:"addr"` // host:port to listen on
	// Pool that admits the connections. It has an upstream such as
	// tcp://10.0.1.1:873. With sni it is for all other clients; empty: they are
	// refused.
	Pool string `yaml:"pool"`
	// SNI leads TLS clients to a pool by the name of the server that they ask for.
	SNI []Name `yaml:"sni"`
	// Allow are the networks whose clients are served; other connections are reset.
	// Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients are not served, even those that allow has.
	Deny []netip.Prefix `yaml:"deny"`
}

// Name leads the TLS clients that ask for this server to a pool. The first name that
// matches wins. Their connection is passed through: the upstream has the certificate.
type Name struct {
	Host string `yaml:"host"` // case does not matter; *.example.com is every name below it
	Pool string `yaml:"pool"` // that admits the connections; it has a tcp upstream
}

// ClientTLS names the PEM files of listen.https. They are read again when they
// change.
type ClientTLS struct {
	Cert string `yaml:"cert"` // the certificate, and those between it and the root
	Key  string `yaml:"key"`  // its key
	// Certificates are for clients that ask for one of their names; others get the
	// one above.
	Certificates []Certificate `yaml:"certificates"`
}

// Certificate is for clients that ask for one of its names: first by the name itself, then
// by a wildcard such as *.example.com.
type Certificate struct {
	Cert string `yaml:"cert"` // the certificate, and those between it and the root
	Key  string `yaml:"key"`  // its key
}

// HSTS tells clients to use https alone (Strict-Transport-Security, RFC 6797). They
// remember it for as long as it says, so begin with a short time.
type HSTS struct {
	// MaxAge is for how long. 0: nothing is said.
	MaxAge time.Duration `yaml:"max_age"`
	// IncludeSubdomains is for all names below the host's, too.
	IncludeSubdomains bool `yaml:"include_subdomains"`
	// Preload asks browsers' makers to put the host on their list.
	Preload bool `yaml:"preload"`
}

// Value returns the header's value; "" if there is none.
func (h HSTS) Value() string {
	if h.MaxAge == 0 {
		return ""
	}
	value := fmt.Sprintf("max-age=%d", int64(h.MaxAge.Seconds()))
	if h.IncludeSubdomains {
		value += "; includeSubDomains"
	}
	if h.Preload {
		value += "; preload"
	}
	return value
}

// Enabled reports whether any of the files is named.
func (t ClientTLS) Enabled() bool { return t.Cert != "" || t.Key != "" }

// RedirectPort returns the port of https; 0: it is not known.
func (l Listen) RedirectPort() int {
	if l.HTTPSPort != 0 {
		return l.HTTPSPort
	}
	_, port, _ := net.SplitHostPort(l.HTTPS)
	n, _ := strconv.Atoi(port)
	return n
}

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
	// 0 counts as 1.
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

// guarded reports whether strangers are kept from the peer and gossip ports.
func (c Cluster) guarded() bool {
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
	// Allow are the networks whose clients the route serves; others get 403, and no
	// place in line. Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients get 403, even those that allow has.
	Deny []netip.Prefix `yaml:"deny"`
	// CORS lets web pages of other origins read the gateway's own answers.
	CORS CORS `yaml:"cors"`
	// RequestHeaders change the requests' header on its way to the upstream.
	RequestHeaders HeaderEdits `yaml:"request_headers"`
	// ResponseHeaders change the header of the upstream's answers.
	ResponseHeaders HeaderEdits `yaml:"response_headers"`
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
