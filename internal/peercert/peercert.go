// Package peercert says which gateway a certificate is for.
//
// A gateway's certificate has its name as the common name or as one of the DNS
// names, and is good for both ends of a connection: of two gateways either one
// dials. Addresses do not count, because gateways move between them.
package peercert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// errName means that a good certificate is another gateway's.
var errName = errors.New("the certificate is another gateway's")

var errNone = errors.New("no certificate")

// Names returns the names that a certificate proves.
func Names(cert *x509.Certificate) []string {
	var names []string
	for _, name := range append([]string{cert.Subject.CommonName}, cert.DNSNames...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// OfConn returns an error unless the other end of conn is a gateway of one of the
// names. Without TLS that cannot be told, and it returns nil.
func OfConn(conn net.Conn, names ...string) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secure.ConnectionState()
	return ofState(&state, names...)
}

// ofState is [OfConn] for the state of a connection; nil: it is not TLS.
func ofState(state *tls.ConnectionState, names ...string) error {
	switch {
	case state == nil:
		return nil
	case len(state.PeerCertificates) == 0:
		return errNone
	}
	return Among(state.PeerCertificates[0], names)
}

// Among returns an error unless a certificate has one of the names.
func Among(cert *x509.Certificate, names []string) error {
	have := Names(cert)
	if slices.ContainsFunc(have, func(name string) bool { return slices.Contains(names, name) }) {
		return nil
	}
	return fmt.Errorf("%w: it is for %s, not for %s", errName, strings.Join(have, ", "), strings.Join(names, ", "))
}

// Check returns an error unless the gateway of that name can use its certificate
// with others that trust roots, and until when it can.
func Check(pair tls.Certificate, roots *x509.CertPool, name string) (until time.Time, err error) {
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return until, err
		}
		chain = append(chain, cert)
	}
	if until, err = Verify(roots, chain); err != nil {
		return until, err
	}
	return until, Among(chain[0], []string{name})
}

// Verify checks that the first certificate of a chain is a gateway's, valid now,
// and issued by roots. It returns when that ends.
func Verify(roots *x509.CertPool, chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) == 0 {
		return until, errNone
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
