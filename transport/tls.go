package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// tlsPair holds what both directions of a connection need.
type tlsPair struct {
	server, client *tls.Config
}

func validateTLS(c *tls.Config) error {
	var errs []error
	if c.RootCAs == nil {
		errs = append(errs, fmt.Errorf("%w: TLS.RootCAs is missing: it says whose certificates make a peer", ErrConfig))
	}
	if len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil) {
		errs = append(errs, fmt.Errorf("%w: TLS.Certificates is missing: peers show certificates to each other", ErrConfig))
	}
	return errors.Join(errs...)
}

// newTLSPair derives both directions from one configuration. Whatever c says,
// both ends must have a certificate of c.RootCAs.
func newTLSPair(c *tls.Config) *tlsPair {
	server := c.Clone()
	server.MinVersion = tls.VersionTLS13
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = c.RootCAs
	server.GetConfigForClient = nil // would bypass the two lines above
	server.SessionTicketsDisabled = true

	client := c.Clone()
	client.MinVersion = tls.VersionTLS13
	client.ClientSessionCache = nil
	// Peers are known by the agreed view and dialled by address, so there is no
	// name to check: verifyChain checks all the rest.
	client.InsecureSkipVerify = true
	client.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verifyChain(c.RootCAs, state.PeerCertificates); err != nil {
			return err
		}
		if c.VerifyConnection != nil {
			return c.VerifyConnection(state)
		}
		return nil
	}
	return &tlsPair{server: server, client: client}
}

// verifyChain checks that the first certificate is a server's, valid now, and
// issued by roots.
func verifyChain(roots *x509.CertPool, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// secureServer makes TLS of an accepted connection, if the transport has TLS.
func (t *Transport) secureServer(ctx context.Context, raw net.Conn) (net.Conn, error) {
	pair := t.tls.Load()
	if pair == nil {
		return raw, nil
	}
	conn := tls.Server(raw, pair.server)
	return conn, conn.HandshakeContext(ctx)
}

// secureClient makes TLS of a dialled connection, if the transport has TLS.
func (t *Transport) secureClient(ctx context.Context, raw net.Conn) (net.Conn, error) {
	pair := t.tls.Load()
	if pair == nil {
		return raw, nil
	}
	conn := tls.Client(raw, pair.client)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn, nil
}

// SetTLS replaces the TLS configuration for connections made from now on:
// certificates are renewed without disturbing the links. A transport cannot
// change between TLS and plaintext.
func (t *Transport) SetTLS(c *tls.Config) error {
	if (c == nil) != (t.tls.Load() == nil) {
		return fmt.Errorf("%w: TLS cannot be switched on or off while running", ErrConfig)
	}
	if c == nil {
		return nil
	}
	if err := validateTLS(c); err != nil {
		return err
	}
	t.tls.Store(newTLSPair(c))
	return nil
}
