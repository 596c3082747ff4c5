package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// Over TLS the name of a gateway is the one in its certificate: the common name
// or one of the DNS names. A gateway speaks under its own name only.

// errName says that a certificate is another gateway's.
var errName = errors.New("the certificate is another gateway's")

// CertifiedAs returns an error unless the other end of conn is the gateway of
// that name: without TLS it cannot be told, and nil is returned.
func CertifiedAs(conn net.Conn, name string) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	chain := secure.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	if names := certifiedNames(chain[0]); !slices.Contains(names, name) {
		return fmt.Errorf("%w: %q, not %q", errName, names, name)
	}
	return nil
}

// certifiedNames returns the names that a certificate proves.
func certifiedNames(cert *x509.Certificate) []string {
	return append([]string{cert.Subject.CommonName}, cert.DNSNames...)
}

// CheckCertificate returns an error unless a gateway of that name may use the
// certificate towards others that trust roots, and says until when it may.
func CheckCertificate(pair tls.Certificate, roots *x509.CertPool, name string) (until time.Time, err error) {
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return until, err
		}
		chain = append(chain, cert)
	}
	until, err = verifyChain(roots, chain)
	if err == nil && !slices.Contains(certifiedNames(chain[0]), name) {
		err = fmt.Errorf("%w: %q, and this gateway is %q", errName, certifiedNames(chain[0]), name)
	}
	return until, err
}

// verifyChain checks that the first certificate is a gateway's, valid now, and
// issued by roots. Of two gateways either one dials, so it has to serve for both
// ends. It returns when that will be over.
func verifyChain(roots *x509.CertPool, chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) == 0 {
		return until, errors.New("no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		found, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return until, err
		}
		until = time.Time{}
		for _, c := range found {
			if end := chainEnd(c); end.After(until) {
				until = end
			}
		}
	}
	return until, nil
}

// chainEnd returns when the first certificate of a chain ends.
func chainEnd(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// secured are the open connections over TLS, so that one can be closed whose
// certificate is no longer good. The zero value is empty and ready.
type secured struct {
	mu    sync.Mutex
	conns map[*securedConn]*tls.Conn // since their handshakes
}

// securedConn is what lies below a TLS connection.
type securedConn struct {
	net.Conn
	of     *secured
	closed bool // guarded by of.mu
}

// Close implements net.Conn.
func (c *securedConn) Close() error {
	c.of.mu.Lock()
	c.closed = true
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// below returns what a TLS connection over raw is to lie on.
func (s *secured) below(raw net.Conn) net.Conn { return &securedConn{Conn: raw, of: s} }

// handshake makes TLS of raw, which below has returned, and keeps conn until raw
// is closed.
func (s *secured) handshake(ctx context.Context, raw net.Conn, conn *tls.Conn) (net.Conn, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return conn, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[*securedConn]*tls.Conn)
	}
	if below, ok := raw.(*securedConn); ok && !below.closed {
		s.conns[below] = conn
	}
	return conn, nil
}

// review closes the connections whose certificates verify refuses now.
func (s *secured) review(verify func(tls.ConnectionState) error, log *slog.Logger) {
	s.mu.Lock()
	open := make(map[*securedConn]*tls.Conn, len(s.conns))
	for below, conn := range s.conns {
		open[below] = conn
	}
	s.mu.Unlock()
	for below, conn := range open {
		state := conn.ConnectionState()
		err := verify(state)
		if err == nil {
			continue
		}
		_ = below.Close() // and not conn: TLS would say good-bye first, and could block
		log.Warn("connection to a peer closed: its certificate is no longer good",
			slog.String("remote", below.RemoteAddr().String()), slog.Any("names", certifiedNames(state.PeerCertificates[0])), slog.Any("error", err))
	}
}

// reviewInterval is how often open connections are looked at again: a
// certificate ends, too, while it is in use.
const reviewInterval = 5 * time.Second

// reviewSecured closes connections whose certificates have ended, until Close.
func (t *Transport) reviewSecured() {
	ticker := time.NewTicker(reviewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		if pair := t.tls.Load(); pair != nil {
			t.secured.review(pair.verify, t.config.Logger)
		}
	}
}
