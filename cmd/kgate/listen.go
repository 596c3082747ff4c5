package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"time"

	"github.com/kgate/kgate/gateway"
	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/internal/socket"
	"github.com/kgate/kgate/proxy/downstream"
)

// listenForClients serves the data plane on the addresses for clients.
func (s *server) listenForClients() error {
	l := s.cfg.Listen
	cfg := downstream.Config{
		Handler: s.node.Handler(), ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: l.MaxHeaderBytes,
		MaxConnections: l.MaxConnections, ProxyProtocol: l.ProxyProtocol, Logger: s.log,
	}
	var err error
	if l.HTTPS != "" {
		if s.certificates, err = downstream.LoadCertificates(certificateFiles(l.TLS), s.log); err != nil {
			return fmt.Errorf("listen.tls: %w", err)
		}
		s.wg.Go(func() { s.certificates.Watch(s.ctx) })
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificates.Get}
	}
	if s.clients, err = downstream.NewServer(cfg); err != nil {
		return err
	}
	s.undo = append(s.undo, s.clients.Close)
	if s.cfg.Node.Role == config.RoleWitness {
		return nil
	}
	s.clientAddr = s.serve("http", s.clients.Serve)
	for i, t := range l.TCP {
		at := s.serve(tcpSocket(i), func(l net.Listener) error { return s.clients.ServeTCP(l, t.Addr) })
		s.log.Info("listening for TCP connections", slog.String("tcp", at.String()), slog.String("pool", t.Pool))
	}
	if l.HTTPS != "" {
		at := s.serve("https", s.clients.ServeTLS)
		s.log.Info("listening for clients over TLS", slog.String("https", at.String()))
	}
	return nil
}

// listenForOperators serves the admin API on its address.
func (s *server) listenForOperators() error {
	names := append([]string{s.cfg.Node.Name}, s.cfg.Listen.AdminNames...)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	h := operators{Handler: admin.CheckHost(gateway.Admin(s.node.Node), names), guarded: !slices.ContainsFunc(s.sockets["admin"], isOpen)}
	server, err := newOperators(h, 0, s.log)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, server.Close)
	s.adminAddr = s.serve("admin", server.Serve)
	return nil
}

// startPatience is how long the connections of clients wait to be accepted until the node may admit
// requests. A node that is started again is ready within a second as a rule.
const startPatience = 5 * time.Second

// serve runs a server on the open sockets of a name, and returns the address of the
// first.
func (s *server) serve(name string, serve func(net.Listener) error) net.Addr {
	listeners := s.sockets[name]
	delete(s.sockets, name)
	for _, l := range listeners {
		if activated, is := l.(*inherited); is && name != "admin" {
			s.activated = append(s.activated, activated)
		}
		s.wg.Go(func() {
			if name != "admin" {
				ctx, cancel := context.WithTimeout(s.ctx, startPatience)
				_ = s.node.Ready(ctx) // if it fails, clients are told so
				cancel()
			}
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("listen.%s %s: %w", name, l.Addr(), err)
			}
		})
	}
	return listeners[0].Addr()
}

// addresses returns where the configuration says to listen for clients and operators,
// by the name of the socket: listen.NAME is its key.
func (s *server) addresses() map[string]string {
	l := s.cfg.Listen
	all := map[string]string{"admin": l.Admin}
	if s.cfg.Node.Role == config.RoleWitness {
		return all
	}
	all["http"] = l.HTTP
	for i, t := range l.TCP {
		all[tcpSocket(i)] = t.Addr
	}
	if l.HTTPS != "" {
		all["https"] = l.HTTPS
	}
	return all
}

// tcpSocket names the socket of an element of listen.tcp.
func tcpSocket(i int) string { return fmt.Sprintf("tcp[%d]", i) }

// openSockets listens on the configured addresses, except sockets that systemd has opened. It runs before
// the node starts: an address in use stops the gateway before it joins a cluster, and the first requests
// find a socket.
func (s *server) openSockets() error {
	addrs := s.addresses()
	for _, name := range slices.Sorted(maps.Keys(s.sockets)) {
		if addrs[name] == "" {
			return fmt.Errorf("systemd hands over a socket named %q, and listen.%s is not in the configuration", name, name)
		}
		for _, l := range s.sockets[name] {
			// As for an address of the configuration, which says so itself.
			at := l.Addr()
			if name == "admin" && s.cfg.Node.AdminTokenFile == "" && at.Network() != "unix" && !hostaddr.BoundTo(at.String()).IsLoopback() {
				return errors.New("the socket from systemd can be reached from other machines, and there is no node.admin_token_file: make one with kgate keygen --token, or listen on 127.0.0.1")
			}
		}
	}
	if s.sockets == nil {
		s.sockets = make(map[string][]net.Listener)
	}
	for _, name := range slices.Sorted(maps.Keys(addrs)) {
		if len(s.sockets[name]) > 0 {
			continue
		}
		l, err := listen(addrs[name])
		if err != nil {
			return listenError("listen."+name, addrs[name], err)
		}
		s.sockets[name] = []net.Listener{l}
	}
	return nil
}

// listen listens on a TCP address, or on a unix socket.
func listen(addr string) (net.Listener, error) {
	if path, ok := socket.Path(addr); ok {
		return socket.Listen(path)
	}
	var c net.ListenConfig
	c.SetMultipathTCP(false) // MPTCP sockets take no filter: see tcpstate.ConnectNoMore
	return c.Listen(context.Background(), "tcp", addr)
}

// listenError says why kgate cannot listen on the address of a key, and what to do.
func listenError(key, addr string, err error) error {
	var failed *net.OpError
	if !errors.As(err, &failed) || failed.Net != "tcp" {
		return fmt.Errorf("%s %s: %w", key, addr, err)
	}
	return fmt.Errorf("%s %s: %w%s", key, addr, failed.Err, cmp.Or(hostaddr.Advice(failed), "; is it an address of this machine?"))
}

// closeSockets closes the sockets that are not served yet.
func (s *server) closeSockets() error {
	for _, sockets := range s.sockets {
		closeAll(sockets)
	}
	return nil
}

// profiles serves the profiles of the process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
