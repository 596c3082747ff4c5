package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Config is the configuration of one gateway. [LoadWith], [Parse] and [Default] make one, and
// know where its values come from. It is not changed afterwards except by [Config.Resolve].
// Reading it is safe for concurrent use.
type Config struct {
	Node      Node      `yaml:"node"`
	Listen    Listen    `yaml:"listen"`
	Cluster   Cluster   `yaml:"cluster"`
	Drain     Draining  `yaml:"drain"`
	Pools     []Pool    `yaml:"pools"`
	Routes    []Route   `yaml:"routes"`
	Log       Log       `yaml:"log"`
	Telemetry Telemetry `yaml:"telemetry"`
	// TrustedProxies are the reverse proxies whose X-Forwarded-* headers are trusted.
	// Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// RequestIDHeader names the header that holds a request's ID, such as X-Request-ID,
	// for upstream, client, access log, traces and the gateway's own errors. A client's
	// ID of at most 128 letters, digits and -_.~:/+=@ is kept; others get a random UUID.
	// Empty: none.
	RequestIDHeader string `yaml:"request_id_header"`
	// ErrorPages are shown to people in place of the gateway's own text.
	ErrorPages []ErrorPage `yaml:"error_pages"`

	src *source
}

// Node describes this gateway.
type Node struct {
	// Name of the gateway, unique in its cluster. Default: the host name.
	Name string `yaml:"name"`
	// Role of the gateway. A witness votes and serves nothing: it has no pools, and two
	// gateways with one survive the loss of any of the three.
	Role Role `yaml:"role"`
	// DataDir is where the agreed views and tickets survive a restart. Empty: in memory
	// only.
	DataDir string `yaml:"data_dir"`
	// Advertise is the address, without a port, under which the others reach this one.
	// Default: the host of listen.peer if that is one address, else the first private
	// address.
	Advertise netip.Addr `yaml:"advertise"`
	// AdminTokenFile holds the token that changes over the admin address require, the
	// same on every gateway. One on each line; all are accepted. It is read again when it
	// changes.
	AdminTokenFile string `yaml:"admin_token_file"`
}

// Draining says how the gateway stops, on SIGTERM or kgate leave.
type Draining struct {
	// Timeout is how long requests in flight may take to finish; then they are aborted. The
	// gateway stops as soon as the last one has finished. auto: the longest hold.max of the
	// pools, but at least 30s and at most 30m.
	Timeout AutoDuration `yaml:"timeout"`
	// Waiting says what happens to requests that wait: with refuse they are refused, and can
	// wait at another gateway; with finish they are served.
	Waiting Waiting `yaml:"waiting"`
}

// Listen holds the addresses to listen on, each host:port, and the limits of client
// connections. An empty host means every address of the machine; port 0 means any free
// port.
type Listen struct {
	// HTTP serves clients without TLS: HTTP/1.1 and HTTP/2 (h2c).
	HTTP string `yaml:"http"`
	// HTTPS serves clients over TLS: HTTP/1.1 and HTTP/2. Empty: none.
	HTTPS string `yaml:"https"`
	// HTTPSOnly redirects clients of http to https (308), unless a proxy in
	// trusted_proxies says by X-Forwarded-Proto that they use it.
	HTTPSOnly bool `yaml:"https_only"`
	// HTTPSPort is the port that clients are redirected to. 0: the port of https.
	HTTPSPort int `yaml:"https_port"`
	// HSTS tells clients to use https from then on.
	HSTS HSTS `yaml:"hsts"`
	// TLS has the certificates for HTTPS.
	TLS ClientTLS `yaml:"tls"`
	// Allow are the networks whose clients http and https serve; others get 403. Behind
	// trusted_proxies X-Forwarded-For counts. Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients get 403, even if allow includes them.
	Deny []netip.Prefix `yaml:"deny"`
	// Admin serves the status page, the API, metrics and health checks. unix:/PATH is a
	// socket, for users who may open that file. One that other machines can reach
	// requires node.admin_token_file.
	Admin string `yaml:"admin"`
	// AdminNames are names under which the admin address is reached, such as
	// kgate.example.com. IP addresses, names without a dot and the machine's own need not
	// be listed; any other name gets 421.
	AdminNames []string `yaml:"admin_names"`
	// TCP serves clients that speak other protocols than HTTP.
	TCP []Listener `yaml:"tcp"`
	// Peer is the address for the other gateways, over TCP, which they join.
	Peer string `yaml:"peer"`
	// ProxyProtocol are the peers whose connections must begin with a PROXY header,
	// version 1 or 2; others must not send one.
	ProxyProtocol []netip.Prefix `yaml:"proxy_protocol"`
	// HeaderTimeout is how long a client may take to send a request's header.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// IdleTimeout is how long a client's connection stays open without a request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxHeaderBytes is the largest size of a request's header.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
	// WaitingHeaderBytes is how large the headers of all waiting requests may be together.
	// What does not fit is refused at once (`queue-full`), unless a slot is free.
	WaitingHeaderBytes int `yaml:"waiting_header_bytes"`
	// MaxConnections is how many client connections may be open at once; the next one
	// waits. 0: 7/16 of the file descriptors.
	MaxConnections int `yaml:"max_connections"`
}

// Listener sends TCP connections to a pool. Each takes one slot for as long as it
// lasts; in line it is open and silent.
type Listener struct {
	Addr string `yaml:"addr"` // host:port to listen on
	// Pool that admits the connections; it needs a tcp upstream. With sni it is for
	// clients that match no name; empty: they are refused.
	Pool string `yaml:"pool"`
	// SNI chooses the pool of a TLS client by the server name that the client asks for.
	SNI []Name `yaml:"sni"`
	// Allow are the networks whose clients are served; other connections are reset. Empty:
	// all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients are not served, even if allow includes them.
	Deny []netip.Prefix `yaml:"deny"`
}

// Name sends the TLS clients that ask for this server to a pool; the first that matches
// wins. The upstream has the certificate.
type Name struct {
	Host string `yaml:"host"` // case does not matter; *.example.com is every name below it
	Pool string `yaml:"pool"` // that admits the connections; it has a tcp upstream
}

// ClientTLS names the PEM files of listen.https. They are read again when they
// change.
type ClientTLS struct {
	Cert string `yaml:"cert"` // the certificate, then its intermediates
	Key  string `yaml:"key"`  // its private key
	// Certificates are for clients that ask for one of their names; others get the one
	// above.
	Certificates []Certificate `yaml:"certificates"`
}

// Certificate is for clients that ask for one of its names. An exact name wins over a
// wildcard such as *.example.com.
type Certificate struct {
	Cert string `yaml:"cert"` // the certificate, then its intermediates
	Key  string `yaml:"key"`  // its private key
}

// HSTS tells clients to use https only (Strict-Transport-Security, RFC 6797). They remember
// that for max_age, so begin with a short time.
type HSTS struct {
	// MaxAge is how long clients remember it. 0: the header is not sent.
	MaxAge time.Duration `yaml:"max_age"`
	// IncludeSubdomains applies it to all subdomains of the host.
	IncludeSubdomains bool `yaml:"include_subdomains"`
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

// Cluster says how this gateway finds the others and how they protect their traffic.
type Cluster struct {
	// Join are addresses, host:port, of the peer ports of gateways to join; any one
	// member is enough.
	Join []string `yaml:"join"`
	// BootstrapExpect is the number of gateways that found the cluster together. 0 or 1:
	// this one founds it alone, or none if it has others to join.
	BootstrapExpect int `yaml:"bootstrap_expect"`
	// Lease is how long a gateway may have requests in flight without hearing from the
	// cluster; at least a second, agreed on when the cluster is founded. A round trip may
	// take up to a tenth of it.
	Lease time.Duration `yaml:"lease"`
	// KeyFile holds the cluster key, the same on every gateway, which protects all
	// traffic between them. One on each line: the first is used, all are accepted. It is
	// read again when it changes.
	KeyFile string `yaml:"key_file"`
	// TLS is mutual TLS between gateways with certificates of your own, in place of
	// key_file. Set all three files or none.
	TLS PeerTLS `yaml:"tls"`
	// Insecure lets gateways exchange unprotected traffic: anybody who reaches the peer
	// port can then change k and act as a gateway.
	Insecure bool `yaml:"insecure"`
}

// guarded reports whether only gateways with the keys can use the peer port.
func (c Cluster) guarded() bool { return c.KeyFile != "" || c.TLS.Enabled() }

// PeerTLS names the PEM files of mutual TLS between gateways.
type PeerTLS struct {
	CA   string `yaml:"ca"`   // the authority that signs the certificates of the cluster
	Cert string `yaml:"cert"` // this gateway's certificate
	Key  string `yaml:"key"`  // its private key
	// Names are the gateways that may take part, as in their certificates. Empty: every
	// name that the authority has signed.
	Names []string `yaml:"names"`
}

// Enabled reports whether gateways use TLS between each other.
func (t PeerTLS) Enabled() bool { return t.CA != "" || t.Cert != "" || t.Key != "" }

// Route sends requests to a pool. The first route that matches wins; a request that matches
// none gets 404.
type Route struct {
	// Pool that admits the requests. Empty: they go to upstreams without admission.
	Pool  string `yaml:"pool"`
	Match Match  `yaml:"match"`
	// StripPrefix is removed from the path before it goes upstream, if it ends where a
	// segment ends: /a from /a/b, not from /ab.
	StripPrefix string `yaml:"strip_prefix"`
	// Upstreams of a route without a pool.
	Upstreams []*url.URL `yaml:"upstreams"`
	// Allow are the networks whose clients the route serves; others get 403 and no place in
	// line. Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients get 403, even if allow includes them.
	Deny []netip.Prefix `yaml:"deny"`
	// CORS lets web pages of other origins read the gateway's own answers.
	CORS CORS `yaml:"cors"`
	// ErrorPages are the route's own: where they have one for a status, it is shown in
	// place of the top level's.
	ErrorPages []ErrorPage `yaml:"error_pages"`
	// RequestHeaders edit the header of requests on their way to the upstream.
	RequestHeaders HeaderEdits `yaml:"request_headers"`
	// ResponseHeaders edit the header of the upstream's answers.
	ResponseHeaders HeaderEdits `yaml:"response_headers"`
}

// Match selects requests; an empty field matches all.
type Match struct {
	Host       string   `yaml:"host"`        // without port; case does not matter; *.example.com is every name below it
	PathPrefix string   `yaml:"path_prefix"` // of the decoded path; runs of slashes count as one, and case matters
	Methods    []string `yaml:"methods"`     // one of which must match
}

// all reports whether m selects every request.
func (m Match) all() bool {
	return m.Host == "" && (m.PathPrefix == "" || m.PathPrefix == "/") && len(m.Methods) == 0
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // the lowest level that is written
	Format string `yaml:"format"` // the format of a line
	Access bool   `yaml:"access"` // whether to write one line per request
}

// Telemetry says where traces go.
type Telemetry struct {
	// OTLPEndpoint is a collector that takes OTLP over HTTP, such as
	// http://127.0.0.1:4318. Empty: no traces.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// SampleRatio is the share of requests to trace, unless they bring a trace context,
	// which decides.
	SampleRatio float64 `yaml:"sample_ratio"`
}
