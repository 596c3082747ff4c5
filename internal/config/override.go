package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
)

// Overrides are the values of flags and environment variables; nil or empty leaves the
// key to the file. The tags are kong's: a command that embeds
// the struct gets a flag and a variable for each field. The tag key names the key of the
// file that the field replaces.
type Overrides struct {
	Upstream []string `name:"upstream" env:"KGATE_UPSTREAM" placeholder:"URL" help:"Proxy to this upstream. May be given several times: least in flight first. URL#k=2: at most 2 requests into this one."`
	K        *int     `name:"k" env:"KGATE_K" placeholder:"N" help:"Let at most N requests into the upstream, over all gateways."`
	Pool     string   `name:"pool" env:"KGATE_POOL" placeholder:"NAME" help:"Pool that --upstream and --k belong to (default: the only one, or \"default\")."`

	Witness        bool   `name:"witness" env:"KGATE_WITNESS" help:"Vote in the cluster and serve nothing. Two gateways and a witness survive the loss of any one of the three."`
	Name           string `name:"name" env:"KGATE_NAME" key:"node.name" placeholder:"NAME" help:"Name of this gateway (default: the host name)."`
	DataDir        string `name:"data-dir" env:"KGATE_DATA_DIR" key:"node.data_dir" placeholder:"DIR" help:"Directory for the agreed views and tickets, so that they survive a restart."`
	AdminTokenFile string `name:"admin-token-file" env:"KGATE_ADMIN_TOKEN_FILE" key:"node.admin_token_file" placeholder:"FILE" help:"File with the token that changes over the admin address require."`
	Advertise      string `name:"advertise" env:"KGATE_ADVERTISE" key:"node.advertise" placeholder:"IP" help:"Address under which the other gateways reach this one."`

	ListenHTTP  string `name:"listen-http" env:"KGATE_LISTEN_HTTP" key:"listen.http" placeholder:"ADDR" help:"Address for clients (default :8080)."`
	ListenHTTPS string `name:"listen-https" env:"KGATE_LISTEN_HTTPS" key:"listen.https" placeholder:"ADDR" help:"Address for clients over TLS (default: none)."`
	TLSCert     string `name:"tls-cert" env:"KGATE_TLS_CERT" key:"listen.tls.cert" placeholder:"FILE" help:"Certificate for --listen-https, PEM."`
	TLSKey      string `name:"tls-key" env:"KGATE_TLS_KEY" key:"listen.tls.key" placeholder:"FILE" help:"Private key of that certificate, PEM."`
	ListenAdmin string `name:"listen-admin" env:"KGATE_LISTEN_ADMIN" key:"listen.admin" placeholder:"ADDR" help:"Address for the status page, the API, metrics and health checks (default 127.0.0.1:9080)."`
	ListenPeer  string `name:"listen-peer" env:"KGATE_LISTEN_PEER" key:"listen.peer" placeholder:"ADDR" help:"Address for other gateways (default :7080)."`

	Join            []string `name:"join" env:"KGATE_JOIN" key:"cluster.join" placeholder:"ADDR" help:"Peer address, host:port, of a gateway to join. May be given several times; one is enough."`
	ClusterKeyFile  string   `name:"cluster-key-file" env:"KGATE_CLUSTER_KEY_FILE" key:"cluster.key_file" placeholder:"FILE" help:"File with the cluster key, made by kgate keygen."`
	Insecure        bool     `name:"insecure" env:"KGATE_INSECURE" key:"cluster.insecure" help:"Allow unprotected traffic between gateways on addresses that other machines can reach."`
	BootstrapExpect *int     `name:"bootstrap-expect" env:"KGATE_BOOTSTRAP_EXPECT" key:"cluster.bootstrap_expect" placeholder:"N" help:"Found the cluster when N gateways have met."`

	DrainTimeout string `name:"drain-timeout" env:"KGATE_DRAIN_TIMEOUT" key:"drain.timeout" placeholder:"TIME" help:"How long requests in flight may take to finish after SIGTERM (default: the longest hold.max of the pools, at most 30m)."`

	LogLevel  string `name:"log-level" env:"KGATE_LOG_LEVEL" key:"log.level" placeholder:"LEVEL" help:"debug, info, warn or error (default info)."`
	LogFormat string `name:"log-format" env:"KGATE_LOG_FORMAT" key:"log.format" placeholder:"FORMAT" help:"json or text (default json)."`
}

// defaultPoolName names the pool of a gateway that runs without a file.
const defaultPoolName = "default"

// apply puts o on top of c without checking the values.
func (c *Config) apply(o Overrides) []error {
	a := &applier{src: c.src}
	a.keys(reflect.ValueOf(c).Elem(), reflect.ValueOf(o))
	if o.Witness {
		c.Node.Role = RoleWitness
		a.mark("node.role", "witness")
	}
	a.pool(c, o)
	return a.errs
}

// implyRoute sends every request to the only pool if there is no route and the pool
// serves requests.
func (c *Config) implyRoute() {
	if len(c.Routes) == 0 && len(c.Pools) == 1 && c.Pools[0].Name != "" && !c.src.broken(keyRoutes) && c.Pools[0].serves(false) {
		c.Routes = []Route{{Pool: c.Pools[0].Name}}
	}
}

// applier puts flags on top of a configuration, and remembers which flag gave a key.
type applier struct {
	src  *source
	errs []error
}

func (a *applier) mark(key, flag string) {
	a.src.override(key, place{flag: flagName(flag)})
}

// flagName names a flag and its variable as one place.
func flagName(flag string) string {
	return "--" + flag + " (KGATE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) + ")"
}

// keys puts the fields of o that have a key, and are given, in place of c's.
func (a *applier) keys(c, o reflect.Value) {
	for i := range o.NumField() {
		tag, value := o.Type().Field(i).Tag, o.Field(i)
		key := tag.Get("key")
		if key == "" || value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			continue
		}
		at := c
		for name := range strings.SplitSeq(key, ".") {
			at, _ = fieldOf(at, name)
		}
		if kindOf(at) == kindParsed {
			a.parse(key, tag.Get("name"), value.String(), at)
			continue
		}
		at.Set(reflect.Indirect(value))
		a.mark(key, tag.Get("name"))
	}
}

func (a *applier) fail(key, wrong, hint string) {
	a.errs = append(a.errs, a.src.at(key, wrong, hint))
	a.src.fail(key)
}

// parse reads what a flag says about a key into v.
func (a *applier) parse(key, flag, text string, v reflect.Value) {
	a.mark(key, flag)
	var p *problemError
	if errors.As(parseInto(text, v), &p) {
		a.fail(key, p.wrong, p.hint)
	}
}

// pool applies --upstream, --k and --pool.
func (a *applier) pool(c *Config, o Overrides) {
	if len(o.Upstream) == 0 && o.K == nil {
		if o.Pool != "" {
			a.flagError("pool", "has no effect alone", "give --upstream or --k with it")
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
			a.parse(fmt.Sprintf("%s.upstreams[%d]", key, j), "upstream", s, reflect.ValueOf(&us[j]).Elem())
		}
		c.Pools[i].Upstreams = us
	}
}

// poolIndex returns which pool the flags are about. Without any it makes one.
func (a *applier) poolIndex(c *Config, o Overrides) (int, bool) {
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

func (a *applier) newPool(c *Config, o Overrides) bool {
	p := DefaultPool()
	p.Name = defaultPoolName
	a.mark(keyPools, "upstream")
	if o.Pool != "" {
		p.Name = o.Pool
		a.mark("pools[0].name", "pool")
	}
	c.Pools = []Pool{p}
	if o.K == nil && !strings.Contains(strings.Join(o.Upstream, " "), "#k=") {
		a.flagError("k", "is missing", "write how many requests the upstream may get at once, such as --k 8")
		a.src.fail("pools[0].k")
	}
	if len(o.Upstream) == 0 {
		a.flagError("upstream", "is missing", "write where the requests go, such as --upstream http://127.0.0.1:9000")
		a.src.fail("pools[0].upstreams")
	}
	return true
}

func (a *applier) flagError(flag, wrong, hint string) {
	a.errs = append(a.errs, &valueError{File: flagName(flag), Wrong: wrong, Hint: hint})
}
