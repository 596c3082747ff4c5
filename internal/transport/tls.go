package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kgate/kgate/internal/peercert"
)

// tlsPair holds what both directions of a connection need.
type tlsPair struct {
	server, client *tls.Config
	// verify checks the other end's certificate, also of a connection that is
	// open already, and returns until when it is good.
	verify func(tls.ConnectionState) (until time.Time, err error)
}

func validateTLS(c *tls.Config) error {
	var errs []error
	if c.RootCAs == nil {
		errs = append(errs, fmt.Errorf("%w: TLS.RootCAs is missing: it says whose certificates make a peer", errConfig))
	}
	if len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil) {
		errs = append(errs, fmt.Errorf("%w: TLS.Certificates is missing: peers show certificates to each other", errConfig))
	}
	return errors.Join(errs...)
}

// newTLSPair derives both directions from one configuration. Whatever c says,
// both ends must have a certificate of c.RootCAs that is good for either end.
func newTLSPair(c *tls.Config) *tlsPair {
	pair := &tlsPair{verify: func(state tls.ConnectionState) (time.Time, error) {
		until, err := peercert.Verify(c.RootCAs, state.PeerCertificates)
		if err != nil {
			return until, &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		if c.VerifyConnection != nil {
			err = c.VerifyConnection(state)
		}
		return until, err
	}}
	verify := func(state tls.ConnectionState) error {
		_, err := pair.verify(state)
		return err
	}
	server := c.Clone()
	server.MinVersion = tls.VersionTLS13
	server.ClientAuth = tls.RequireAndVerifyClientCert
	server.ClientCAs = c.RootCAs
	server.GetConfigForClient = nil // would bypass the two lines above
	server.SessionTicketsDisabled = true
	server.VerifyConnection = verify

	client := c.Clone()
	client.MinVersion = tls.VersionTLS13
	client.ClientSessionCache = nil
	// Peers are dialled by address. Which gateway is to be there is checked by
	// who dials it: see peercert.OfConn.
	client.InsecureSkipVerify = true
	client.VerifyConnection = verify
	pair.server, pair.client = server, client
	return pair
}

// secure makes TLS of a connection, if the transport has TLS.
func (t *Transport) secure(ctx context.Context, raw *securedConn, accepted bool) (net.Conn, error) {
	switch pair := t.tls.Load(); {
	case pair == nil:
		return raw, nil
	case accepted:
		return t.secured.handshake(ctx, raw, tls.Server(raw, pair.server))
	default:
		return t.secured.handshake(ctx, raw, tls.Client(raw, pair.client))
	}
}

// SetTLS replaces the TLS configuration. Connections that are open stay, if the
// other end's certificate is good under the new one too; the others are closed.
// A transport cannot change between TLS and plaintext.
func (t *Transport) SetTLS(c *tls.Config) error {
	if (c == nil) != (t.tls.Load() == nil) {
		return fmt.Errorf("%w: TLS cannot be switched on or off while running", errConfig)
	}
	if c == nil {
		return nil
	}
	if err := validateTLS(c); err != nil {
		return err
	}
	pair := newTLSPair(c)
	t.tls.Store(pair)
	t.review()
	return nil
}
