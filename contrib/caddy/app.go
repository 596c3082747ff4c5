package kgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(Handler))
	caddy.RegisterModule(new(Admin))
	caddy.RegisterModule(new(Transport))
}

// App is the node of this Caddy. A reload keeps it, with the requests that wait.
type App struct {
	// Name of the node, unique in the cluster. Default: the host name.
	Name string `json:"name,omitempty"`
	// DataDir keeps what the cluster has agreed on, and tickets, over a restart. Without
	// it they are in memory only.
	DataDir string `json:"data_dir,omitempty"`
	// Listen is the TCP address for other nodes, default ":7080".
	Listen string `json:"listen,omitempty"`
	// Advertise is the IP address at which other nodes reach it.
	Advertise string `json:"advertise,omitempty"`
	// Join are addresses, host:port, of other nodes.
	Join []string `json:"join,omitempty"`
	// BootstrapExpect is how many nodes begin a new cluster together.
	BootstrapExpect int `json:"bootstrap_expect,omitempty"`
	// Lease is how long a node may have requests in flight without news of the others;
	// default 3 s.
	Lease caddy.Duration `json:"lease,omitempty"`
	// KeyFile holds the cluster's key, as `kgate keygen` makes it. It is read again at each
	// reload.
	KeyFile string `json:"key_file,omitempty"`
	// AdminTokenFile holds a token that changes over kgate_admin need.
	AdminTokenFile string `json:"admin_token_file,omitempty"`
	// Insecure lets nodes talk in the clear on addresses that other machines reach.
	Insecure bool `json:"insecure,omitempty"`
	// ShutdownTimeout is how long requests in flight may take to finish when Caddy ends;
	// default 30 s.
	ShutdownTimeout caddy.Duration `json:"shutdown_timeout,omitempty"`

	ctx   caddy.Context
	cfg   gateway.Config  // without its pools
	pools map[string]Pool // of the handlers
	token string          // of AdminTokenFile
	key   string          // of the member in members
	// member is set while the App runs.
	member atomic.Pointer[member]
}

var (
	_ caddy.Provisioner   = (*App)(nil)
	_ caddy.App           = (*App)(nil)
	_ caddy.CleanerUpper  = (*App)(nil)
	_ caddyevents.Handler = (*App)(nil)
)

// CaddyModule implements caddy.Module.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "kgate", New: func() caddy.Module { return new(App) }}
}

// Provision reads the files and opens nothing.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.cfg = gateway.Config{Config: kgate.Config{
		Name: a.Name, DataDir: a.DataDir, Logger: ctx.Slogger(), ClientAddr: clientAddr,
		Peers: kgate.Peers{
			Listen: a.Listen, Join: a.Join, Expect: a.BootstrapExpect,
			Lease: time.Duration(a.Lease), Insecure: a.Insecure,
		},
	}}
	if a.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot read the host name: %w; write name", err)
		}
		a.cfg.Name = name
	}
	if a.Advertise != "" {
		addr, err := netip.ParseAddr(a.Advertise)
		if err != nil {
			return fmt.Errorf("advertise: %w", err)
		}
		a.cfg.Peers.Advertise = addr
	}
	if a.KeyFile != "" {
		key, err := os.ReadFile(a.KeyFile)
		if err != nil {
			return fmt.Errorf("key_file: %w", err)
		}
		a.cfg.Peers.Key = key
	}
	if a.AdminTokenFile != "" {
		var err error
		if a.token, err = readToken(a.AdminTokenFile); err != nil {
			return fmt.Errorf("admin_token_file: %w", err)
		}
	}
	a.key = a.cfg.Name + " " + a.Listen
	if err := ctx.GetMetricsRegistry().Register(metrics{a.key}); err != nil {
		return err
	}
	// Apps stop in any order, and the HTTP servers wait for requests in line: the node has to
	// refuse them first.
	events, err := ctx.App("events")
	if err != nil {
		return err
	}
	return events.(*caddyevents.App).On("stopping", a)
}

// sameNode reports whether a needs no other node than b. Their keys in members are the
// same.
func (a *App) sameNode(b *App) bool {
	return a.DataDir == b.DataDir && a.Advertise == b.Advertise && slices.Equal(a.Join, b.Join) && a.BootstrapExpect == b.BootstrapExpect &&
		a.Lease == b.Lease && a.Insecure == b.Insecure && (a.KeyFile == "") == (b.KeyFile == "")
}

// share has the node share the pool that a handler describes or names.
func (a *App) share(p Pool) error {
	known, ok := a.pools[p.Name]
	switch {
	case !ok, known == Pool{Name: p.Name}:
		if a.pools == nil {
			a.pools = make(map[string]Pool)
		}
		a.pools[p.Name] = p
	case p != known && p != Pool{Name: p.Name}:
		return fmt.Errorf("pool %s is described in two ways: write its settings once, and elsewhere only its name", p.Name)
	}
	return nil
}

// Start starts the node, or has it follow this configuration. The HTTP servers may have
// started already.
func (a *App) Start() error {
	for name, p := range a.pools {
		if p.K < 1 {
			return fmt.Errorf("kgate: pool %s has no k: write kgate %s { k 6 } once", name, name)
		}
	}
	value, _, err := members.LoadOrNew(a.key, func() (caddy.Destructor, error) { return newMember(a) })
	if err != nil {
		return err
	}
	m := value.(*member)
	if err = m.follow(a); err != nil {
		m.forget(a)
		_, e := members.Delete(a.key)
		return errors.Join(err, e)
	}
	a.member.Store(m)
	return nil
}

// Handle is called when Caddy is about to stop this configuration.
func (a *App) Handle(context.Context, caddy.Event) error {
	if m := a.member.Load(); m != nil {
		if users, _ := members.References(a.key); users == 1 {
			m.node.BeginDrain()
		}
	}
	return nil
}

// Stop does nothing: requests are in flight until the HTTP servers have stopped.
func (*App) Stop() error { return nil }

// Cleanup shuts the node down if no other configuration uses it.
func (a *App) Cleanup() error {
	m := a.member.Load()
	if m == nil {
		return nil
	}
	m.forget(a)
	_, err := members.Delete(a.key)
	return err
}

// clientAddr is the client as Caddy sees it, with its trusted proxies.
func clientAddr(r *http.Request) netip.Addr {
	text, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, _ := netip.ParseAddr(text)
	return addr
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return token, nil
}
