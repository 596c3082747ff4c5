package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/proxy"
)

// listenForClients serves the data plane on the addresses for clients.
func (s *server) listenForClients() error {
	l := s.cfg.Listen
	cfg := proxy.ServerConfig{
		Handler: s.node.Handler(), ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: l.MaxHeaderBytes,
		MaxConnections: l.MaxConnections, ProxyProtocol: l.ProxyProtocol, Logger: s.log,
	}
	var err error
	if l.HTTPS != "" {
		if s.certificates, err = proxy.LoadCertificates(certificateFiles(l.TLS), s.log); err != nil {
			return fmt.Errorf("listen.tls: %w", err)
		}
		s.wg.Go(func() { s.certificates.Watch(s.ctx) })
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificates.Get}
	}
	if s.clients, err = proxy.NewServer(cfg); err != nil {
		return err
	}
	s.undo = append(s.undo, s.clients.Close)
	if s.cfg.Node.Role == config.RoleWitness {
		return nil
	}
	if s.clientAddr, err = s.serve("listen.http", l.HTTP, s.clients.Serve); err != nil {
		return err
	}
	for i, t := range l.TCP {
		at, err := s.serve(fmt.Sprintf("listen.tcp[%d]", i), t.Addr, func(l net.Listener) error { return s.clients.ServeTCP(l, t.Addr) })
		if err != nil {
			return err
		}
		s.log.Info("listening for TCP connections", slog.String("tcp", at.String()), slog.String("pool", t.Pool))
	}
	if l.HTTPS == "" {
		return nil
	}
	secure, err := s.serve("listen.https", l.HTTPS, s.clients.ServeTLS)
	if err == nil {
		s.log.Info("listening for clients over TLS", slog.String("https", secure.String()))
	}
	return err
}

// listenForOperators serves the admin API on its address.
func (s *server) listenForOperators() error {
	s.admin = admin.NewServer(s.node.Admin(), s.log)
	s.undo = append(s.undo, s.admin.Close)
	var err error
	if s.adminAddr, err = s.serve("listen.admin", s.cfg.Listen.Admin, s.admin.Serve); err != nil {
		return err
	}
	return s.unusedSockets()
}

// serve runs a server on an address, and returns where it listens.
func (s *server) serve(key, addr string, serve func(net.Listener) error) (net.Addr, error) {
	listeners, err := s.listen(key, addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", key, addr, err)
	}
	for _, l := range listeners {
		s.wg.Go(func() {
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("%s %s: %w", key, l.Addr(), err)
			}
		})
	}
	return listeners[0].Addr(), nil
}

// profiles serves what package runtime knows of the process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
