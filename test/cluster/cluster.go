package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admission"
)

// PoolName names the one pool of the gateways that Start starts.
const PoolName = "pool"

// Options of a cluster. K and Upstream are required.
type Options struct {
	// Gateways that found the cluster; default 3.
	Gateways int
	// Witness: the last of them votes and serves nothing.
	Witness bool
	// Name that the gateways' names begin with; default "gw".
	Name string
	// K of the pool.
	K int
	// Upstream is the URL of the pool's upstream.
	Upstream string
	// Upstreams, in place of Upstream, have a k of their own; K is their sum. Settings are
	// further keys of the pool, in YAML, and Queue of its queue.
	Upstreams []Upstream
	Settings  string
	Queue     string
	// Binding is late or early; default late.
	Binding string
	// QueueTimeout and QueueLimit of the pool; default 60 s and 20,000.
	QueueTimeout time.Duration
	QueueLimit   int
	// TicketTTL of the pool; default: kgate's.
	TicketTTL time.Duration
	// MaxConnections of clients at a gateway; default: kgate's.
	MaxConnections int
	// Binary to run; default: the one that [Binary] returns.
	Binary string
	// Durable gateways keep their views, and their addresses, over a restart.
	Durable bool
	// KeyFile holds the cluster's key; none if empty.
	KeyFile string
	// Tokens is a file with admin tokens. Empty: a token of the test's own, where one is needed.
	Tokens string
	// TLS between the gateways; none if nil.
	TLS *TLSFiles
	// Lease of a gateway; default: [Lease] of kgate's default.
	Lease time.Duration
	// Pools beside the one, each reached under /NAME/, or at Cluster.TCP if its
	// upstream is tcp://host:port.
	Pools []Pool
	// Listen are further keys of listen, in YAML, such as "header_timeout: 1s".
	Listen string
	// Telemetry are keys of telemetry, in YAML, such as "sample_ratio: 1".
	Telemetry string
	// ClientTLS is the certificate with which the gateways serve clients over
	// TLS, too; they do not if it is nil.
	ClientTLS *TLSFiles
	// Trusted proxies of the gateways.
	Trusted []string
	// Hosts of the gateways, in the order of their start. Gateways without one
	// run on loopback.
	Hosts []Host
	// Cuts returns what was cut in the network so far; nil: nothing is.
	Cuts func() []Cut
	// Dial reaches the gateways' Clients addresses from the test; default: as
	// the test process does.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Upstream has a k of its own.
type Upstream struct {
	URL string
	K   int
}

// Pool is one more pool.
type Pool struct {
	Name     string
	K        int
	Upstream string
	// Settings are further keys in YAML, such as "reclaim: hold, hold: {max: 9s}".
	Settings string
	// Route are further keys of its route, in YAML.
	Route string
}

// isTCP reports whether the pool admits connections and not requests.
func (p Pool) isTCP() bool { return strings.HasPrefix(p.Upstream, "tcp://") }

// Host is where a gateway runs.
type Host struct {
	// Command that the gateway's own is appended to.
	Command []string
	// Peers and Clients are its addresses, without a port, for other gateways
	// and for everybody else.
	Peers, Clients string
}

// loopback is the host of a gateway that is given none.
var loopback = Host{Peers: "127.0.0.1", Clients: "127.0.0.1"}

// TLSFiles name PEM files. CA is for mutual TLS between gateways.
type TLSFiles struct{ CA, Cert, Key string }

func (o Options) withDefaults() Options {
	o.Gateways = cmp.Or(o.Gateways, 3)
	o.Name = cmp.Or(o.Name, "gw")
	o.Binding = cmp.Or(o.Binding, "late")
	o.QueueTimeout = cmp.Or(o.QueueTimeout, time.Minute)
	o.QueueLimit = cmp.Or(o.QueueLimit, 20_000)
	o.Lease = cmp.Or(o.Lease, Lease(3*time.Second))
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o
}

// Cluster is a number of gateways with one pool.
type Cluster struct {
	// Gateways in the order of their start. Those that have ended stay.
	Gateways []*Gateway

	mu      sync.Mutex // for Restart, which others may watch
	ever    []*Gateway // all that were ever started
	caused  []string
	watched bool // see WatchStatus
	opt     Options
	dir     string
	tcp     map[string]string // addresses for TCP connections, by gateway and pool
}

// Start starts gateways and waits until all of them are ready. They end with
// the test.
func Start(tb testing.TB, opt Options) *Cluster {
	tb.Helper()
	c := &Cluster{opt: opt.withDefaults(), dir: memoryDir(tb), tcp: make(map[string]string)}
	for range c.opt.Gateways {
		c.launch(tb, c.opt.Gateways)
	}
	endTogether(tb, c)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*patience) // messages may be slow
	defer cancel()
	for _, g := range c.Gateways {
		if err := g.AwaitReady(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// memoryDir returns a new folder whose files are in memory, if the machine has a place for
// them. While other tests are built, a write to the disk can take longer than elections do.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kgate")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// endTogether ends the gateways at the same time, which is quicker than what
// each process does for itself; and before that it judges what they have said.
func endTogether(tb testing.TB, c *Cluster) {
	tb.Cleanup(func() {
		c.judgeWords(tb)
		var wg sync.WaitGroup
		for _, g := range c.Gateways {
			wg.Go(func() { _, _ = g.Stop() }) // complained about when the process is ended for good
		}
		wg.Wait()
	})
}

// Launch starts one more gateway, which joins. It may not be ready yet.
func (c *Cluster) Launch(tb testing.TB) *Gateway {
	tb.Helper()
	return c.launch(tb, 1)
}

// LaunchStranger starts a gateway that tries to join with other options, and is
// not counted among the cluster's.
func (c *Cluster) LaunchStranger(tb testing.TB, name string, edit func(*Options)) *Gateway {
	tb.Helper()
	other := &Cluster{opt: c.opt, dir: tb.TempDir(), tcp: make(map[string]string), Gateways: c.Gateways}
	edit(&other.opt)
	c.Causes("refused", "a gateway was refused: its name is in use")
	return other.start(tb, name, 1)
}

func (c *Cluster) launch(tb testing.TB, expect int) *Gateway {
	tb.Helper()
	g := c.start(tb, fmt.Sprintf("%s-%d", c.opt.Name, len(c.Gateways)+1), expect)
	c.Gateways = append(c.Gateways, g)
	return g
}

// start starts a gateway that joins those that are there.
func (c *Cluster) start(tb testing.TB, name string, expect int) *Gateway {
	tb.Helper()
	host := loopback
	if i := len(c.Gateways); i < len(c.opt.Hosts) {
		host = c.opt.Hosts[i]
	}
	listen := [3]string{host.Clients + ":0", host.Clients + ":0", host.Peers + ":0"}
	if c.opt.Durable {
		for i := range listen {
			if len(c.opt.Hosts) > 0 {
				listen[i] = strings.TrimSuffix(listen[i], "0") + strconv.Itoa(firstPort+i) // a host is the gateway's alone
			} else {
				listen[i] = ReservePort(tb)
			}
		}
	}
	token := c.opt.Tokens
	if host.Clients != loopback.Clients { // others can reach the admin address
		token = c.TokenFile()
		if _, err := os.Stat(token); err == nil {
			// The same for all.
		} else if err := os.WriteFile(token, []byte(rand.Text()), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	for _, p := range c.opt.Pools {
		if p.isTCP() && c.tcp[name+" "+p.Name] == "" {
			c.tcp[name+" "+p.Name] = ReservePort(tb)
		}
	}
	file := c.ConfigFile(name)
	if err := os.WriteFile(file, []byte(c.config(name, expect, listen, token)), 0o600); err != nil {
		tb.Fatal(err)
	}
	command := append(slices.Clone(host.Command), cmp.Or(c.opt.Binary, Binary(tb)), "serve", "-c", file)
	g := launch(tb, name, command, c.joins(), c.opt.Dial)
	c.ever = append(c.ever, g)
	return g
}

// ConfigFile returns the path of a gateway's configuration.
func (c *Cluster) ConfigFile(name string) string { return filepath.Join(c.dir, name+".yaml") }

// TokenFile returns the path of the admin token that the gateways share where others can reach their
// admin addresses.
func (c *Cluster) TokenFile() string { return filepath.Join(c.dir, "token") }

// joins returns the flags that name the other gateways.
func (c *Cluster) joins(but ...int) (flags []string) {
	for i, g := range c.Gateways {
		if !slices.Contains(but, i) {
			flags = append(flags, "--join", g.Peer)
		}
	}
	return flags
}

// config returns the configuration of one gateway.
func (c *Cluster) config(name string, expect int, listen [3]string, token string) string {
	o := c.opt
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	data := ""
	if o.Durable {
		data = c.DataDir(name)
	}
	role := "gateway"
	if o.Witness && name == fmt.Sprintf("%s-%d", o.Name, o.Gateways) {
		role = "witness"
	}
	write("node: {name: %q, role: %s, data_dir: %q, admin_token_file: %q}\n", name, role, data, token)
	write("listen:\n  {http: %q, admin: %q, peer: %q", listen[0], listen[1], listen[2])
	if o.MaxConnections > 0 {
		write(", max_connections: %d", o.MaxConnections)
	}
	if tls := o.ClientTLS; tls != nil {
		write(", https: \"127.0.0.1:0\", tls: {cert: %q, key: %q}", tls.Cert, tls.Key)
	}
	if o.Listen != "" {
		write(", %s", o.Listen)
	}
	write(", tcp: [")
	for _, p := range o.Pools {
		if p.isTCP() {
			write("{addr: %q, pool: %s},", c.TCP(name, p.Name), p.Name)
		}
	}
	write("]")
	write("}\ntrusted_proxies: [%s]\n", strings.Join(o.Trusted, ", "))
	write("cluster:\n  bootstrap_expect: %d\n  key_file: %q\n", expect, o.KeyFile)
	if host, _, _ := net.SplitHostPort(listen[2]); host != "127.0.0.1" && o.TLS == nil && o.KeyFile == "" {
		write("  insecure: true\n") // in a namespace of the test's own
	}
	if tls := o.TLS; tls != nil {
		write("  tls: {ca: %q, cert: %q, key: %q}\n", tls.CA, tls.Cert, tls.Key)
	}
	write("  lease: %v\n", o.Lease)
	write("log: {access: false}\n")
	if role == "witness" {
		return b.String()
	}
	o.writePools(write)
	if o.Telemetry != "" {
		write("telemetry: {%s}\n", o.Telemetry)
	}
	return b.String()
}

// writePools writes what a witness has not: pools, and their routes.
func (o *Options) writePools(write func(format string, args ...any)) {
	write("pools:\n  - {name: %s, binding: %s, queue: {timeout: %v, limit: %d, %s}, ticket_ttl: %v, ",
		PoolName, o.Binding, o.QueueTimeout, o.QueueLimit, o.Queue, cmp.Or(o.TicketTTL, admission.DefaultTicketTTL))
	if o.Settings != "" {
		write("%s, ", o.Settings)
	}
	if o.Upstreams == nil {
		write("k: %d, upstreams: [%q]}\n", o.K, o.Upstream)
	} else {
		write("upstreams: [")
		for _, u := range o.Upstreams {
			write("{url: %q, k: %d}, ", u.URL, u.K)
		}
		write("]}\n")
	}
	for _, p := range o.Pools {
		write("  - {name: %s, k: %d, upstreams: [%q]", p.Name, p.K, p.Upstream)
		if p.Settings != "" {
			write(", %s", p.Settings)
		}
		write("}\n")
	}
	write("routes:\n")
	for _, p := range o.Pools {
		if !p.isTCP() {
			write("  - {pool: %s, match: {path_prefix: /%s/}", p.Name, p.Name)
			if p.Route != "" {
				write(", %s", p.Route)
			}
			write("}\n")
		}
	}
	write("  - {pool: %s}\n", PoolName)
}

// TCP returns where a gateway takes the connections of a pool.
func (c *Cluster) TCP(gateway, pool string) string { return c.tcp[gateway+" "+pool] }

// DataDir returns where a durable gateway keeps its state.
func (c *Cluster) DataDir(name string) string { return filepath.Join(c.dir, name) }

// Restart starts the gateway again that has ended at this place. It may not be
// ready yet.
func (c *Cluster) Restart(tb testing.TB, i int) *Gateway {
	tb.Helper()
	old := c.Gateways[i]
	g := launch(tb, old.Name, old.command, c.joins(i), c.opt.Dial)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Gateways[i] = g
	c.ever = append(c.ever, g)
	return g
}

// Pools returns the pool named PoolName as each gateway sees it.
func (c *Cluster) Pools(ctx context.Context) ([]admin.Pool, error) {
	var pools []admin.Pool
	for _, g := range c.Gateways {
		if g.ended() {
			continue
		}
		s, err := g.Status(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.Pools, func(p admin.Pool) bool { return p.Name == PoolName })
		if i < 0 {
			return nil, fmt.Errorf("%s has no pool %s", g.Name, PoolName)
		}
		pools = append(pools, s.Pools[i])
	}
	return pools, nil
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Metrics returns the sum of all gateways' metrics.
func (c *Cluster) Metrics(ctx context.Context) (Metrics, error) {
	sum := make(Metrics)
	for _, g := range c.Gateways {
		if g.ended() {
			continue
		}
		m, err := g.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		sum.Add(m)
	}
	return sum, nil
}

// AwaitWhole waits until nobody waits, nobody is in flight, and all k tokens are
// free: no slot is lost.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	return Await(ctx, func() error {
		pools, err := c.Pools(ctx)
		if err != nil {
			return err
		}
		var errs []error
		free := 0
		for i, p := range pools {
			free += p.FreeTokensHere
			if p.InFlight != 0 || p.Waiting != 0 {
				errs = append(errs, fmt.Errorf("gateway %d: %d in flight, %d waiting", i+1, p.InFlight, p.Waiting))
			}
		}
		if free != c.opt.K {
			errs = append(errs, fmt.Errorf("%d tokens are free, k is %d", free, c.opt.K))
		}
		return errors.Join(errs...)
	})
}
