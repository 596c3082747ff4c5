package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"slices"
	"time"
)

// A pool's slots are for requests and for TCP connections alike: they wait in one line.
// Upstreams of scheme tcp serve the connections, the others the requests.
const schemeTCP = "tcp"

// TCP leads the connections of one listener to a pool. Each is one request of it: it
// takes a slot when it begins and gives it back when it ends.
type TCP struct {
	// Listener is the name of the listener, which ServeTCP is given.
	Listener string
	// Pool that admits the connections. It has an upstream of scheme tcp. Empty: only
	// clients are served that ask for one of Names.
	Pool string
	// Names lead TLS clients that ask for a server by name to pools of their own; the
	// first that matches does. The TLS connection itself is the upstream's.
	Names []ServerName
	// Access says which clients are served.
	Access Access
}

// ServerName leads the clients that ask for a server to a pool.
type ServerName struct {
	// Host is compared regardless of case. "*.example.com" matches every name below
	// example.com.
	Host string
	Pool string
}

// check returns what is wrong with t.
func (t TCP) check(pools map[string]*Pool) []string {
	var msgs []string
	for _, name := range t.pools() {
		switch {
		case pools[name] == nil:
			msgs = append(msgs, fmt.Sprintf("there is no pool %q", name))
		case !pools[name].serves(true):
			msgs = append(msgs, fmt.Sprintf("pool %q has no upstream of scheme tcp", name))
		}
	}
	return msgs
}

// pools returns the names of the pools that t leads to.
func (t TCP) pools() []string {
	var names []string
	if t.Pool != "" || len(t.Names) == 0 {
		names = append(names, t.Pool)
	}
	for _, n := range t.Names {
		names = append(names, n.Pool)
	}
	return names
}

// serves reports whether the pool has an upstream for TCP connections, or one for
// requests.
func (p *Pool) serves(connections bool) bool {
	return slices.ContainsFunc(p.all(), func(u *url.URL) bool { return u != nil && (u.Scheme == schemeTCP) == connections })
}

// split returns the pool as its requests see it, and as its TCP connections do. There are
// no health checks for these: a failure to connect is what shows that an upstream is down.
func (p Pool) split() (forHTTP, forTCP Pool) {
	forHTTP, forTCP = p, p
	forTCP.Health.Path = ""
	isTCP := func(u *url.URL) bool { return u.Scheme == schemeTCP }
	forHTTP.Upstreams, forTCP.Upstreams = partition(p.Upstreams, isTCP)
	forHTTP.Backup, forTCP.Backup = partition(p.Backup, isTCP)
	return forHTTP, forTCP
}

// partition returns the upstreams that are not of a kind, and those that are.
func partition(all []*url.URL, kind func(*url.URL) bool) (others, these []*url.URL) {
	for _, u := range all {
		if kind(u) {
			these = append(these, u)
		} else {
			others = append(others, u)
		}
	}
	return others, these
}

// all returns the upstreams, the backups last.
func (p *Pool) all() []*url.URL { return slices.Concat(p.Upstreams, p.Backup) }

// tcpRoute is a TCP made ready. Its routes match by host alone.
type tcpRoute struct {
	listener string
	access   Access
	named    routes
	other    *route // of clients that none of named matches; nil: they are refused
}

func (s *snapshot) newTCPRoute(t TCP) *tcpRoute {
	lead := func(host, pool string) *route {
		return newRoute(Route{Match: Match{Host: host}}, s.pool(pool), s.tcpPools[pool])
	}
	r := &tcpRoute{listener: t.Listener, access: t.Access}
	for _, n := range t.Names {
		r.named = append(r.named, lead(n.Host, n.Pool))
	}
	if t.Pool != "" {
		r.other = lead("", t.Pool)
	}
	return r
}

// find returns where a client goes that asks for a server; nil: it is refused.
func (r *tcpRoute) find(name string) *route {
	for _, named := range r.named {
		if name != "" && named.matches(name, "") {
			return named
		}
	}
	return r.other
}

// ServeTCP accepts connections on l until Shutdown or Close, and then returns nil. The
// Handler's configuration says under that name where they go.
func (s *Server) ServeTCP(l net.Listener, name string) error {
	limited := s.limiter.listen(l, s.cfg.ProxyProtocol, s.cfg.ReadHeaderTimeout)
	if ok, err := s.start(limited); !ok {
		return errors.Join(err, limited.Close())
	}
	defer s.serving.Done()
	for {
		conn, err := limited.Accept()
		if err != nil {
			if s.isClosing() {
				return nil
			}
			if !s.acceptAgain(err) {
				return err
			}
			continue
		}
		client := conn.(*clientConn)
		s.limiter.opened(client) // nothing has to come first, as a request has
		s.cfg.Handler.streams.add(1)
		go s.serveConn(client, name)
		runtime.Gosched() // it enters the line before the next one is accepted, as a rule
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// acceptAgain waits after a failure that passes, such as too many open files, and
// reports whether it is one.
func (s *Server) acceptAgain(err error) bool {
	var passing interface{ Temporary() bool }
	if !errors.As(err, &passing) || !passing.Temporary() {
		return false
	}
	if suppressed, ok := s.limiter.once.Allow("accept"); ok {
		s.cfg.Logger.Warn("a connection cannot be accepted", slog.Any("error", err), slog.Int("suppressed", suppressed))
	}
	const pause = 50 * time.Millisecond
	select {
	case <-time.After(pause):
	case <-s.base.Done():
	}
	return true
}

// serveConn sees a TCP connection through.
func (s *Server) serveConn(conn *clientConn, listener string) {
	defer s.cfg.Handler.streams.add(-1)
	snapshot := s.cfg.Handler.current.Load()
	route := snapshot.tcp[listener]
	if route == nil { // a reload has taken it away
		conn.reset()
		return
	}
	// The PROXY header, if there has to be one, is read before anything else is done.
	if _, err := conn.Read(nil); err != nil {
		if suppressed, ok := s.limiter.once.Allow("header"); ok {
			s.cfg.Logger.Info("connection refused: no PROXY header", slog.String("remote", conn.raw.RemoteAddr().String()),
				slog.Any("error", err), slog.Int("suppressed", suppressed))
		}
		conn.reset()
		return
	}
	if !route.access.allows(remoteAddr(conn)) {
		if suppressed, ok := s.limiter.once.Allow("access"); ok {
			s.cfg.Logger.Info("connection refused: clients of this address are not served", slog.String("remote", conn.RemoteAddr().String()),
				slog.String("listener", listener), slog.Int("suppressed", suppressed))
		}
		conn.reset()
		return
	}
	server := ""
	var said []byte
	if len(route.named) > 0 {
		var err error
		if server, said, err = readServerName(conn, s.cfg.ReadHeaderTimeout); err != nil {
			conn.reset()
			return
		}
	}
	to := route.find(server)
	if to == nil {
		conn.reset()
		return
	}
	se := newSession(s.base, snapshot, to, conn)
	se.said, se.info.Path = said, listener
	se.serve()
}
