package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// Overrides are what flags and environment variables say; nil or empty is
// what they leave to the file. The tags are kong's: a command embeds the
// struct, and so gets a flag and a variable for each field.
type Overrides struct {
	Upstream []string `name:"upstream" env:"KGATE_UPSTREAM" placeholder:"URL" help:"Proxy to this upstream. May be given several times: least in flight first."`
	K        *int     `name:"k" env:"KGATE_K" placeholder:"N" help:"Let at most N requests into the upstream, over all gateways."`
	Pool     string   `name:"pool" env:"KGATE_POOL" placeholder:"NAME" help:"The pool that --upstream and --k are about (default: the only one, or \"default\")."`

	Witness        bool   `name:"witness" env:"KGATE_WITNESS" help:"Vote in the cluster and serve nothing. Two gateways and a witness survive the loss of any one."`
	Name           string `name:"name" env:"KGATE_NAME" placeholder:"NAME" help:"Name of this gateway (default: the host name)."`
	DataDir        string `name:"data-dir" env:"KGATE_DATA_DIR" placeholder:"DIR" help:"Keep the agreed views here over a restart."`
	AdminTokenFile string `name:"admin-token-file" env:"KGATE_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File with the token that changes over the admin address need."`
	Advertise      string `name:"advertise" env:"KGATE_ADVERTISE" placeholder:"IP" help:"Address under which the other gateways reach this one."`

	ListenHTTP   string `name:"listen-http" env:"KGATE_LISTEN_HTTP" placeholder:"ADDR" help:"Address for clients (default :8080)."`
	ListenHTTPS  string `name:"listen-https" env:"KGATE_LISTEN_HTTPS" placeholder:"ADDR" help:"Address for clients over TLS (default: none)."`
	TLSCert      string `name:"tls-cert" env:"KGATE_TLS_CERT" placeholder:"FILE" help:"Certificate for --listen-https, PEM."`
	TLSKey       string `name:"tls-key" env:"KGATE_TLS_KEY" placeholder:"FILE" help:"Its key, PEM."`
	ListenAdmin  string `name:"listen-admin" env:"KGATE_LISTEN_ADMIN" placeholder:"ADDR" help:"Address for status, metrics and health (default 127.0.0.1:9080)."`
	ListenPeer   string `name:"listen-peer" env:"KGATE_LISTEN_PEER" placeholder:"ADDR" help:"Address for other gateways (default :7080)."`
	ListenGossip string `name:"listen-gossip" env:"KGATE_LISTEN_GOSSIP" placeholder:"ADDR" help:"Address for gossip, UDP and TCP (default :7946)."`

	Join            []string `name:"join" env:"KGATE_JOIN" placeholder:"ADDR" help:"Gossip address of a gateway to join. May be given several times; one is enough."`
	ClusterKeyFile  string   `name:"cluster-key-file" env:"KGATE_CLUSTER_KEY_FILE" placeholder:"FILE" help:"File with the cluster's key, made by kgate keygen."`
	Insecure        bool     `name:"insecure" env:"KGATE_INSECURE" help:"Let gateways talk in the clear on addresses that other machines reach."`
	BootstrapExpect *int     `name:"bootstrap-expect" env:"KGATE_BOOTSTRAP_EXPECT" placeholder:"N" help:"Found the cluster when N gateways have met."`

	LogLevel  string `name:"log-level" env:"KGATE_LOG_LEVEL" placeholder:"LEVEL" help:"debug, info, warn or error (default info)."`
	LogFormat string `name:"log-format" env:"KGATE_LOG_FORMAT" placeholder:"FORMAT" help:"json or text (default json)."`
}

// defaultPoolName names the pool of a gateway that runs without a file.
const defaultPoolName = "default"

// Apply puts o on top of c and checks the result; on an error c is as before.
//
// Upstream and K are about the pool that o.Pool names, else about the only
// pool. Where there is no pool they make one, named o.Pool or "default", and
// where there is no route either, one that leads every request to it.
func (c *Config) Apply(o Overrides) error {
	next := c.clone()
	if err := next.check(next.apply(o)); err != nil {
		return err
	}
	*c = *next
	return nil
}

// apply puts o on top of c without checking the values.
func (c *Config) apply(o Overrides) []error {
	if c.src == nil {
		c.src = newSource("", nil)
	}
	a := &overrider{src: c.src}
	a.text(&c.Node.Name, o.Name, "node.name", "name")
	a.text(&c.Node.DataDir, o.DataDir, "node.data_dir", "data-dir")
	a.text(&c.Node.AdminTokenFile, o.AdminTokenFile, "node.admin_token_file", "admin-token-file")
	a.text(&c.Listen.HTTP, o.ListenHTTP, "listen.http", "listen-http")
	a.text(&c.Listen.HTTPS, o.ListenHTTPS, "listen.https", "listen-https")
	a.text(&c.Listen.TLS.Cert, o.TLSCert, "listen.tls.cert", "tls-cert")
	a.text(&c.Listen.TLS.Key, o.TLSKey, "listen.tls.key", "tls-key")
	a.text(&c.Listen.Admin, o.ListenAdmin, "listen.admin", "listen-admin")
	a.text(&c.Listen.Peer, o.ListenPeer, "listen.peer", "listen-peer")
	a.text(&c.Listen.Gossip, o.ListenGossip, "listen.gossip", "listen-gossip")
	a.text(&c.Cluster.KeyFile, o.ClusterKeyFile, "cluster.key_file", "cluster-key-file")
	if o.Witness {
		c.Node.Role = RoleWitness
		a.mark("node.role", "witness")
	}
	if o.Insecure {
		c.Cluster.Insecure = true
		a.mark("cluster.insecure", "insecure")
	}
	a.text(&c.Log.Level, o.LogLevel, "log.level", "log-level")
	a.text(&c.Log.Format, o.LogFormat, "log.format", "log-format")
	if o.Advertise != "" {
		overrideParsed(a, &c.Node.Advertise, o.Advertise, "node.advertise", "advertise", parseAddr)
	}
	if len(o.Join) > 0 {
		c.Cluster.Join = o.Join
		a.mark("cluster.join", "join")
	}
	if o.BootstrapExpect != nil {
		c.Cluster.BootstrapExpect = *o.BootstrapExpect
		a.mark("cluster.bootstrap_expect", "bootstrap-expect")
	}
	a.pool(c, o)
	c.implyRoute()
	return a.errs
}

// implyRoute leads every request to the only pool if there is no route, and the pool
// serves requests.
func (c *Config) implyRoute() {
	if len(c.Routes) == 0 && len(c.Pools) == 1 && c.Pools[0].Name != "" && !c.src.broken(keyRoutes) && c.Pools[0].serves(false) {
		c.Routes = []Route{{Pool: c.Pools[0].Name}}
	}
}

// overrider remembers which flag gave a key.
type overrider struct {
	src  *source
	errs []error
}

func (a *overrider) mark(key, flag string) {
	a.src.override(key, place{flag: flagName(flag)})
}

// flagName names a flag and its variable as one place.
func flagName(flag string) string { return "--" + flag + " (" + envName(flag) + ")" }

func envName(flag string) string {
	b := []byte("KGATE_" + flag)
	for i, ch := range b {
		switch {
		case ch == '-':
			b[i] = '_'
		case 'a' <= ch && ch <= 'z':
			b[i] = ch - 'a' + 'A'
		}
	}
	return string(b)
}

func (a *overrider) text(to *string, value, key, flag string) {
	if value != "" {
		*to = value
		a.mark(key, flag)
	}
}

func (a *overrider) fail(key, wrong, hint string) {
	a.errs = append(a.errs, a.src.at(key, wrong, hint))
	a.src.fail(key)
}

func overrideParsed[T any](a *overrider, to *T, value, key, flag string, parse func(string) (T, error)) {
	a.mark(key, flag)
	parsed, err := parse(value)
	if err == nil {
		*to = parsed
		return
	}
	var p *problemError
	if errors.As(err, &p) {
		a.fail(key, p.wrong, p.hint)
	}
}

// pool applies --upstream, --k and --pool.
func (a *overrider) pool(c *Config, o Overrides) {
	if len(o.Upstream) == 0 && o.K == nil {
		if o.Pool != "" {
			a.flagError("pool", "says nothing about the pool", "give --upstream or --k with it")
		}
		return
	}
	i, ok := a.poolIndex(c, o)
	if !ok {
		return
	}
	key := fmt.Sprintf("%s[%d]", keyPools, i)
	if o.K != nil {
		c.Pools[i].K = *o.K
		a.mark(key+".k", "k")
	}
	if len(o.Upstream) > 0 {
		a.mark(key+".upstreams", "upstream")
		us := make([]*url.URL, len(o.Upstream))
		for j, s := range o.Upstream {
			overrideParsed(a, &us[j], s, fmt.Sprintf("%s.upstreams[%d]", key, j), "upstream", parseUpstream)
		}
		c.Pools[i].Upstreams = us
	}
}

// poolIndex returns which pool the flags are about. Without any it makes one.
func (a *overrider) poolIndex(c *Config, o Overrides) (int, bool) {
	names := make([]string, 0, len(c.Pools))
	for i, p := range c.Pools {
		if p.Name == o.Pool {
			return i, true
		}
		names = append(names, p.Name)
	}
	switch {
	case c.src.broken(keyPools):
		return 0, false
	case len(c.Pools) == 0:
		return 0, a.newPool(c, o)
	case o.Pool != "":
		a.flagError("pool", "there is no pool "+quote(o.Pool), didYouMean(o.Pool, names, "the pools are"))
		return 0, false
	case len(c.Pools) > 1:
		a.flagError("pool", "is missing, and there are several pools", "write which one --upstream and --k are about: "+list(names))
		return 0, false
	default:
		return 0, true
	}
}

func (a *overrider) newPool(c *Config, o Overrides) bool {
	p := DefaultPool()
	p.Name = defaultPoolName
	a.mark(keyPools, "upstream")
	if o.Pool != "" {
		p.Name = o.Pool
		a.mark("pools[0].name", "pool")
	}
	c.Pools = []Pool{p}
	if o.K == nil {
		a.flagError("k", "is missing", "write how many requests the upstream may get at once, such as --k 8")
		a.src.fail("pools[0].k")
	}
	if len(o.Upstream) == 0 {
		a.flagError("upstream", "is missing", "write where the requests go, such as --upstream http://127.0.0.1:9000")
		a.src.fail("pools[0].upstreams")
	}
	return true
}

func (a *overrider) flagError(flag, wrong, hint string) {
	a.errs = append(a.errs, &valueError{File: flagName(flag), Wrong: wrong, Hint: hint})
}

// clone returns a copy that apply can change without changing c.
func (c *Config) clone() *Config {
	next := *c
	next.Pools = append([]Pool(nil), c.Pools...)
	next.Routes = append([]Route(nil), c.Routes...)
	next.Listen.TCP = append([]Listener(nil), c.Listen.TCP...)
	next.ErrorPages = append([]ErrorPage(nil), c.ErrorPages...)
	next.Listen.Allow = append([]netip.Prefix(nil), c.Listen.Allow...)
	next.Listen.Deny = append([]netip.Prefix(nil), c.Listen.Deny...)
	next.Listen.TLS.Certificates = append([]Certificate(nil), c.Listen.TLS.Certificates...)
	next.Cluster.Join = append([]string(nil), c.Cluster.Join...)
	next.Cluster.TLS.Names = append([]string(nil), c.Cluster.TLS.Names...)
	next.Listen.ProxyProtocol = append([]netip.Prefix(nil), c.Listen.ProxyProtocol...)
	next.TrustedProxies = append([]netip.Prefix(nil), c.TrustedProxies...)
	next.src = c.src.clone()
	return &next
}
