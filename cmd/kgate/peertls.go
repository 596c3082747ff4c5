package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/kgate/kgate/config"
)

// peerTLS holds the certificates with which gateways prove themselves to each
// other, as their files were read last.
type peerTLS struct {
	files         config.PeerTLS
	ca, cert, key []byte
	// expires is when a peer no longer takes the certificate.
	expires time.Time
}

const (
	// peerTLSInterval is how often the files are read again.
	peerTLSInterval = 5 * time.Second
	// expiryNotice is how long ahead the end of a certificate is told of, and
	// expiryAgain how often.
	expiryNotice = 30 * 24 * time.Hour
	expiryAgain  = 24 * time.Hour
)

// readPeerTLS reads the files and returns what they make. What it does return of
// files that cannot be used tells whether they change.
func readPeerTLS(files config.PeerTLS) (*peerTLS, *tls.Config, error) {
	p := &peerTLS{files: files}
	var errs [3]error
	p.ca, errs[0] = os.ReadFile(files.CA)
	p.cert, errs[1] = os.ReadFile(files.Cert)
	p.key, errs[2] = os.ReadFile(files.Key)
	if err := errors.Join(errs[:]...); err != nil {
		return p, nil, fmt.Errorf("cluster.tls: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.ca) {
		return p, nil, fmt.Errorf("cluster.tls.ca: %s holds no certificate in PEM form", files.CA)
	}
	pair, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return p, nil, fmt.Errorf("cluster.tls.cert and cluster.tls.key: %s and %s: %w", files.Cert, files.Key, err)
	}
	if p.expires, err = provesPeer(pair, roots); err != nil {
		return p, nil, fmt.Errorf("cluster.tls.cert: no peer would take %s: %w", files.Cert, err)
	}
	return p, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, nil
}

// provesPeer checks a certificate as the peers will, and tells until when.
func provesPeer(pair tls.Certificate, roots *x509.CertPool) (until time.Time, err error) {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return until, err
		}
		between.AddCert(cert)
	}
	// Of two gateways either one dials.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		chains, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return until, err
		}
		until = time.Time{}
		for _, chain := range chains {
			if end := chainEnd(chain); end.After(until) {
				until = end
			}
		}
	}
	return until, nil
}

func chainEnd(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, cert := range chain[1:] {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end
}

func (p *peerTLS) sameAs(other *peerTLS) bool {
	return bytes.Equal(p.ca, other.ca) && bytes.Equal(p.cert, other.cert) && bytes.Equal(p.key, other.key)
}

// watchCertificates takes the peers' certificates into use when their files
// change, and tells ahead of any certificate's end.
func (n *node) watchCertificates(ctx context.Context) {
	tick := time.NewTicker(peerTLSInterval)
	defer tick.Stop()
	var told time.Time
	for {
		if now := time.Now(); now.Sub(told) >= expiryAgain && n.tellExpiry(now) {
			told = now
		}
		select {
		case <-tick.C:
			n.refreshPeerTLS()
		case <-ctx.Done():
			return
		}
	}
}

// refreshPeerTLS uses the files as they are now, if they can be used: tools that
// renew certificates write one after the other. Links that are up stay up.
func (n *node) refreshPeerTLS() {
	if n.peerTLS == nil {
		return
	}
	next, secure, err := readPeerTLS(n.peerTLS.files)
	if next.sameAs(n.peerTLS) {
		return
	}
	if err == nil {
		err = n.links.SetTLS(secure)
	}
	if err != nil {
		next.expires = n.peerTLS.expires
		n.log.Error("the peer certificate's files have changed and cannot be used; the last good ones stay", slog.Any("error", err))
	} else {
		n.log.Info("peer certificate read again", slog.String("cert", next.files.Cert), slog.Time("not_after", next.expires))
	}
	n.peerTLS = next
}

// tellExpiry reports whether there was something to tell.
func (n *node) tellExpiry(now time.Time) (told bool) {
	tell := func(key, file string, end time.Time) {
		left := end.Sub(now)
		if left > expiryNotice {
			return
		}
		told = true
		n.log.Warn("a certificate is about to expire: put a new one in its place, it is read without a restart",
			slog.String("key", key), slog.String("file", file), slog.Time("not_after", end), slog.Int("days_left", int(left.Hours()/24)))
	}
	if p := n.peerTLS; p != nil {
		tell("cluster.tls.cert", p.files.Cert, p.expires)
	}
	if n.certificate != nil {
		if pair, err := n.certificate.Get(nil); err == nil {
			tell("listen.tls.cert", n.cfg.Listen.TLS.Cert, pair.Leaf.NotAfter)
		}
	}
	return told
}
