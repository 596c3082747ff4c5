package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/peercert"
)

// trust holds the certificate of this gateway and what it accepts from others, made from one
// cluster key, or from certificates.
type trust struct {
	cluster config.Cluster
	name    string   // of this gateway
	content [][]byte // of the files, when they were last read
	secure  *tls.Config
	// expires is when a peer no longer takes the certificate; zero: never.
	expires time.Time
	failed  bool // content cannot be used (yet)
}

const (
	// trustInterval is how often the files are read again. What has changed is taken into use
	// when it was the same twice in a row: a file that is being written may hold the new key
	// and not yet the old one.
	trustInterval = 2 * time.Second
	// expiryNotice is how long before the end of a certificate the warnings
	// begin, and expiryAgain how often they come.
	expiryNotice = 30 * 24 * time.Hour
	expiryAgain  = 24 * time.Hour
	// expiryTrouble is how long before its end a certificate is in the status, as the alert is.
	expiryTrouble = 14 * 24 * time.Hour
)

// readTrust reads the files that c names. Even with an error it returns their content, so
// that a later change is noticed.
func readTrust(c config.Cluster, name string) (*trust, error) {
	t := &trust{cluster: c, name: name}
	switch {
	case c.KeyFile != "":
		return t, t.readClusterKey()
	case c.TLS.Enabled():
		return t, t.readCertificates()
	default:
		return t, nil
	}
}

// read returns the content of a file that the key names.
func (t *trust) read(key, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	t.content = append(t.content, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return data, nil
}

func (t *trust) readClusterKey() error {
	const key = "cluster.key_file"
	data, err := t.read(key, t.cluster.KeyFile)
	if err != nil {
		return err
	}
	ring, err := clusterkey.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %s: %w; make one with `kgate keygen --out cluster.key`", key, t.cluster.KeyFile, err)
	}
	t.secure, err = ring.TLS(t.name)
	return err
}

func (t *trust) readCertificates() error {
	files := t.cluster.TLS
	ca, errCA := t.read("cluster.tls.ca", files.CA)
	cert, errCert := t.read("cluster.tls.cert", files.Cert)
	key, errKey := t.read("cluster.tls.key", files.Key)
	if err := errors.Join(errCA, errCert, errKey); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("cluster.tls.ca: %s holds no certificate in PEM form", files.CA)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cluster.tls.cert and cluster.tls.key: %s and %s: %w", files.Cert, files.Key, err)
	}
	if t.expires, err = peercert.Check(pair, roots, t.name); err != nil {
		return fmt.Errorf("cluster.tls.cert: no peer would take %s: %w", files.Cert, err)
	}
	t.secure = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if len(files.Names) > 0 {
		t.secure.VerifyConnection = func(state tls.ConnectionState) error {
			return peercert.Among(state.PeerCertificates[0], files.Names)
		}
	}
	return nil
}

func (t *trust) sameAs(other *trust) bool {
	if len(t.content) != len(other.content) {
		return false
	}
	for i := range t.content {
		if !bytes.Equal(t.content[i], other.content[i]) {
			return false
		}
	}
	return true
}

// watchTrust takes keys and certificates into use when their files change, and
// warns before a certificate ends.
func (s *server) watchTrust(ctx context.Context) {
	tick := time.NewTicker(trustInterval)
	defer tick.Stop()
	var warned time.Time
	for {
		if now := time.Now(); s.warnOfExpiry(warned, now) {
			warned = now
		}
		select {
		case <-tick.C:
			s.refreshTrust()
			s.refreshTokens(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// refreshTrust takes the files into use if they are valid now: tools that renew
// certificates write one after the other.
func (s *server) refreshTrust() {
	next, err := readTrust(s.trust.cluster, s.trust.name)
	same, settled := next.sameAs(s.trust), s.lastTrust != nil && next.sameAs(s.lastTrust)
	s.lastTrust = next
	if same && !s.trust.failed || !same && !settled {
		return
	}
	if err == nil {
		err = s.setPeerTLS(next.secure)
	}
	if err != nil {
		next.expires, next.failed = s.trust.expires, true // tried again: a certificate may not be valid yet
		if !same {
			s.log.Error("the changed keys or certificates for other gateways cannot be used: keeping the last good ones", slog.Any("error", err))
		}
	} else {
		var attrs []any
		if !next.expires.IsZero() {
			attrs = append(attrs, slog.String("cert", next.cluster.TLS.Cert), slog.Time("not_after", next.expires))
		}
		s.log.Info("keys and certificates for other gateways read again", attrs...)
	}
	s.trust = next
	s.peerExpiry.Store(&next.expires)
}

// troubles returns the faults of this process's files, for operators.
func (s *server) troubles() []string {
	if !s.listening.Load() {
		return nil
	}
	var out []string
	if read := s.read.Load(); read.err != nil {
		wrong := config.Lines(read.err)
		text := "the configuration was not read again: " + wrong[0]
		if more := len(wrong) - 1; more > 0 {
			text += fmt.Sprintf(", and %s", count(more, "more error"))
		}
		out = append(out, text+"; the old one stays")
	}
	ends := make(map[string]time.Time)
	if expires := s.peerExpiry.Load(); !expires.IsZero() {
		ends[s.cfg.Cluster.TLS.Cert] = *expires
	}
	if s.certificates != nil {
		maps.Copy(ends, s.certificates.Expiry())
	}
	for _, file := range slices.Sorted(maps.Keys(ends)) {
		switch left := time.Until(ends[file]); {
		case left <= 0:
			out = append(out, fmt.Sprintf("the certificate %s has expired on %s: replace the file, no restart is needed", file, ends[file].UTC().Format(time.DateTime)))
		case left < expiryTrouble:
			out = append(out, fmt.Sprintf("the certificate %s expires on %s: replace the file, no restart is needed", file, ends[file].UTC().Format(time.DateTime)))
		}
	}
	return out
}

// warnOfExpiry warns of certificates that end soon, once a day, and at their end. It reports whether it had to; last is
// when it had to last.
func (s *server) warnOfExpiry(last, now time.Time) (warned bool) {
	warn := func(key, file string, end time.Time) {
		left := end.Sub(now)
		if left > expiryNotice || now.Sub(last) < expiryAgain && (left > 0 || !end.After(last)) {
			return
		}
		warned = true
		log := s.log.With(slog.String("key", key), slog.String("file", file), slog.Time("not_after", end))
		if left <= 0 {
			log.Error("a certificate has expired: replace the file, no restart is needed")
			return
		}
		log.Warn("a certificate expires soon: replace the file, no restart is needed", slog.Int("days_left", int(left.Hours()/24)))
	}
	if !s.trust.expires.IsZero() {
		warn("cluster.tls.cert", s.trust.cluster.TLS.Cert, s.trust.expires)
	}
	if s.certificates != nil {
		for file, end := range s.certificates.Expiry() {
			warn("listen.tls", file, end)
		}
	}
	return warned
}
