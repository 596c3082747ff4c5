package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/kgate/kgate/proxy"
)

// listenForClients serves the data plane on the addresses for clients.
func (n *node) listenForClients() error {
	l := n.cfg.Listen
	cfg := proxy.ServerConfig{
		Handler: n.handler, ReadHeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: l.MaxHeaderBytes,
		MaxConnections: l.MaxConnections, ProxyProtocol: l.ProxyProtocol, Logger: n.log,
	}
	var err error
	if l.HTTPS != "" {
		if n.certificate, err = proxy.LoadCertificate(l.TLS.Cert, l.TLS.Key, n.log); err != nil {
			return fmt.Errorf("listen.tls: %w", err)
		}
		n.wg.Go(func() { n.certificate.Watch(n.ctx) })
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: n.certificate.Get}
	}
	if n.clients, err = proxy.NewServer(cfg); err != nil {
		return err
	}
	n.undo = append(n.undo, n.clients.Close)
	if n.clientAddr, err = n.serve("listen.http", l.HTTP, n.clients.Serve); err != nil || l.HTTPS == "" {
		return err
	}
	secure, err := n.serve("listen.https", l.HTTPS, n.clients.ServeTLS)
	if err == nil {
		n.log.Info("listening for clients over TLS", slog.String("https", secure.String()))
	}
	return err
}
