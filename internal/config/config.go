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
	Drain     Draining  `yaml:"drain"`
	Pools     []Pool    `yaml:"pools"`
	Routes    []Route   `yaml:"routes"`
	Log       Log       `yaml:"log"`
	Telemetry Telemetry `yaml:"telemetry"`
	// TrustedProxies are the reverse proxies whose X-Forwarded-* headers are trusted.
	// Default: none.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// RequestIDHeader names the header that holds a request's ID, such as X-Request-ID. The
	// gateway keeps a client's ID of at most 128 letters, digits and -_.~:/+=@, and gives
	// other requests a random UUID. It sends the ID to the upstream and to the client, and
	// shows it in the access log, in traces and in its own errors. Empty: requests have no
	// ID.
	RequestIDHeader string `yaml:"request_id_header"`
	// ErrorPages are shown to people in place of the gateway's own text.
	ErrorPages []ErrorPage `yaml:"error_pages"`

	src *source
}

// Node describes this gateway.
type Node struct {
	// Name of the gateway, unique in its cluster. Default: the host name.
	Name string `yaml:"name"`
	// Role of the gateway. A witness votes in the cluster and serves nothing: it has no
	// pools, and listens only for other gateways and operators. With a witness, two
	// gateways survive the loss of any one of the three.
	Role Role `yaml:"role"`
	// DataDir is where the gateway stores the agreed views and its tickets, so that they
	// survive a restart. Empty: it keeps them in memory only.
	DataDir string `yaml:"data_dir"`
	// Advertise is the address, without a port, under which the other gateways
	// reach this one. Default: the host of listen.peer if that is one address,
	// else this machine's first private address.
	Advertise netip.Addr `yaml:"advertise"`
	// AdminTokenFile holds the token that changes over the admin address require, unless
	// that address is a socket. Use the same token on every gateway. The file may hold
	// several, one on each line; all are accepted. It is read again when it changes.
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
	// HTTPSOnly redirects clients of http to https, with status 308. A client behind a
	// proxy in trusted_proxies is served if X-Forwarded-Proto says that it uses https.
	HTTPSOnly bool `yaml:"https_only"`
	// HTTPSPort is the port that clients are redirected to. 0: the port of https.
	HTTPSPort int `yaml:"https_port"`
	// HSTS tells clients to use https from then on.
	HSTS HSTS `yaml:"hsts"`
	// TLS has the certificates for HTTPS.
	TLS ClientTLS `yaml:"tls"`
	// Allow are the networks whose clients http and https serve; others get 403. The
	// address of a client behind trusted_proxies comes from X-Forwarded-For. Empty: all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients get 403, even if allow includes them.
	Deny []netip.Prefix `yaml:"deny"`
	// Admin serves the status page, the API, metrics and health checks. With unix:/PATH it
	// is a socket, for users who may open that file. An address that other machines can
	// reach requires node.admin_token_file.
	Admin string `yaml:"admin"`
	// AdminNames are names under which the admin address is reached, such as
	// kgate.example.com. IP addresses, names without a dot and the machine's own need not
	// be listed; under any other name it answers 421, so that no web page can lead a browser
	// to it under a name of its own.
	AdminNames []string `yaml:"admin_names"`
	// TCP serves clients that speak other protocols than HTTP.
	TCP []Listener `yaml:"tcp"`
	// Peer is the address for the other gateways, over TCP.
	Peer string `yaml:"peer"`
	// Gossip is the address for serf, over UDP and TCP.
	Gossip string `yaml:"gossip"`
	// ProxyProtocol are the peers whose connections must begin with a PROXY header, version
	// 1 or 2; others must not send one. Default: none.
	ProxyProtocol []netip.Prefix `yaml:"proxy_protocol"`
	// HeaderTimeout is how long a client may take to send a request's header.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// IdleTimeout is how long a client's connection stays open without a request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxHeaderBytes is the largest size of a request's header.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
	// MaxConnections is how many client connections may be open at once; the next one
	// waits. 0: 7/16 of the process's limit of file descriptors.
	MaxConnections int `yaml:"max_connections"`
}

// Listener sends TCP connections to a pool. Each connection takes one slot for as long as
// it lasts. While it waits in line it is open, and the client receives nothing.
type Listener struct {
	Addr string `yaml:"addr"` // host:port to listen on
	// Pool that admits the connections. It needs an upstream such as tcp://10.0.1.1:873.
	// With sni it is for the clients that match no name; empty: they are refused.
	Pool string `yaml:"pool"`
	// SNI chooses the pool of a TLS client by the server name that the client asks for.
	SNI []Name `yaml:"sni"`
	// Allow are the networks whose clients are served; other connections are reset. Empty:
	// all.
	Allow []netip.Prefix `yaml:"allow"`
	// Deny are networks whose clients are not served, even if allow includes them.
	Deny []netip.Prefix `yaml:"deny"`
}

// Name sends the TLS clients that ask for this server to a pool. The first name that
// matches wins. The gateway passes their connections on as they are: the upstream has the
// certificate.
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
	// Preload asks browser vendors to put the host on their list.
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

// Cluster says how this gateway finds the others and how they protect their traffic.
type Cluster struct {
	// Join are gossip addresses, host:port, of gateways to join; any one
	// member is enough.
	Join []string `yaml:"join"`
	// BootstrapExpect is the number of gateways that found the cluster together. 0 or 1:
	// this gateway founds a cluster alone; if it has others to join, it founds none.
	BootstrapExpect int `yaml:"bootstrap_expect"`
	// Lease is how long a gateway may have requests in flight without hearing from the
	// cluster; at least one second. It is the same on every gateway: the cluster agrees on
	// it when it is founded. A round trip between gateways may take up to a tenth of it.
	Lease time.Duration `yaml:"lease"`
	// Replicas is the number of ring successors that keep copies of a gateway's tickets; 0
	// counts as 1.
	Replicas int `yaml:"replicas"`
	// KeyFile holds the cluster key, which protects all traffic between gateways. Use the
	// same file on every gateway. It may hold several keys, one on each line: the first is
	// used, all are accepted. It is read again when it changes.
	KeyFile string `yaml:"key_file"`
	// GossipKey encrypts gossip. It goes with tls, in place of key_file.
	GossipKey Key `yaml:"gossip_key"`
	// GossipKeyFile holds the gossip key, in place of gossip_key. It may hold several keys,
	// one on each line: the first encrypts, all decrypt. It is read again when it changes.
	GossipKeyFile string `yaml:"gossip_key_file"`
	// TLS is mutual TLS between gateways with certificates of your own, in place of
	// key_file. Set all three files or none.
	TLS PeerTLS `yaml:"tls"`
	// Insecure lets gateways exchange unprotected traffic on addresses that other machines
	// can reach. Anybody who can reach the peer port can then change k and act as a
	// gateway.
	Insecure bool `yaml:"insecure"`
}

// guarded reports whether only gateways with the keys can use the peer and gossip ports.
func (c Cluster) guarded() bool {
	return c.KeyFile != "" || c.TLS.Enabled() && (c.GossipKeyFile != "" || len(c.GossipKey) > 0)
}

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
	PathPrefix string   `yaml:"path_prefix"` // of the decoded path; runs of slashes count as one; case matters, so if it does not matter to the upstream, lead all paths to the pool
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
	// AccessFormat is the format of that line: structured, as the other lines, or the
	// common or combined format of web servers, on standard output.
	AccessFormat AccessFormat `yaml:"access_format"`
}

// Telemetry says where traces go.
type Telemetry struct {
	// OTLPEndpoint is the URL of an OpenTelemetry collector that takes OTLP over
	// HTTP, such as http://127.0.0.1:4318. Empty: no traces.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// SampleRatio is the share of requests to trace, from 0 to 1. A request that brings a
	// trace context is traced if that says so.
	SampleRatio float64 `yaml:"sample_ratio"`
}
