package downstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// certificateInterval is how often a certificate's files are read again. Reading
// them is cheap, and safer than comparing their times: some tools keep those, and swap
// directories.
const certificateInterval = 5 * time.Second

// Certificates are those of a server, each with its key and read again when its files
// change. A client gets the first that has the name which it asks for, or else the first
// with a wildcard for it, or else the first of all. They are safe for concurrent use.
type Certificates struct {
	logger  *slog.Logger
	current atomic.Pointer[[]*certificate]
}

// CertificateFiles are the PEM files of a certificate chain and its key.
type CertificateFiles struct{ Cert, Key string }

// LoadCertificates reads one certificate or more. A nil logger discards.
func LoadCertificates(files []CertificateFiles, logger *slog.Logger) (*Certificates, error) {
	c := &Certificates{logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
	use, err := c.Read(files)
	if err != nil {
		return nil, err
	}
	use()
	return c, nil
}

// Read reads other certificates, and changes nothing until use is called. From then on
// they take the place of those before.
func (c *Certificates) Read(files []CertificateFiles) (use func(), err error) {
	if len(files) == 0 {
		return nil, errors.New("there is no certificate")
	}
	var next []*certificate
	for _, f := range files {
		one, err := readCertificate(f)
		if err != nil {
			return nil, err
		}
		next = append(next, one)
	}
	return func() { c.current.Store(&next) }, nil
}

// Expiry returns when each certificate ends, by the name of its file.
func (c *Certificates) Expiry() map[string]time.Time {
	ends := make(map[string]time.Time)
	for _, one := range *c.current.Load() {
		ends[one.name] = one.pair.Load().Leaf.NotAfter
	}
	return ends
}

// Get is a tls.Config's GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	all := *c.current.Load()
	if len(all) == 1 {
		return all[0].pair.Load(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	_, parent, _ := strings.Cut(name, ".")
	for _, wanted := range []string{name, "*." + parent} {
		for _, one := range all {
			pair := one.pair.Load()
			if hasName(pair.Leaf, wanted) && hello.SupportsCertificate(pair) == nil {
				return pair, nil
			}
		}
	}
	return all[0].pair.Load(), nil
}

func hasName(leaf *x509.Certificate, name string) bool {
	return slices.ContainsFunc(leaf.DNSNames, func(own string) bool { return strings.EqualFold(own, name) })
}

// certificate is one of them.
type certificate struct {
	name  string // of the file
	pair  atomic.Pointer[tls.Certificate]
	files pemFiles // refresh's own
}

// pemFiles are a certificate's files, as they were read last.
type pemFiles struct {
	cert, key       string
	certPEM, keyPEM []byte
}

func readCertificate(f CertificateFiles) (*certificate, error) {
	files, err := readPEM(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	pair, err := files.parse()
	if err != nil {
		return nil, err
	}
	c := &certificate{name: f.Cert, files: files}
	c.pair.Store(pair)
	return c, nil
}

// Watch reads the files again every few seconds until ctx ends. A pair that cannot be
// used is logged, once, and the last good one stays: tools that renew certificates write
// one file after the other. Watch must be called at most once.
func (c *Certificates) Watch(ctx context.Context) {
	tick := time.NewTicker(certificateInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.refresh()
		case <-ctx.Done():
			return
		}
	}
}

func (c *Certificates) refresh() {
	for _, one := range *c.current.Load() {
		one.refresh(c.logger)
	}
}

func (c *certificate) refresh(logger *slog.Logger) {
	files, err := readPEM(c.files.cert, c.files.key)
	if bytes.Equal(files.certPEM, c.files.certPEM) && bytes.Equal(files.keyPEM, c.files.keyPEM) {
		return
	}
	c.files = files
	var pair *tls.Certificate
	if err == nil {
		pair, err = files.parse()
	}
	if err != nil {
		logger.Error("the changed certificate cannot be used: keeping the last good one",
			slog.String("cert", files.cert), slog.String("key", files.key), slog.Any("error", err))
		return
	}
	c.pair.Store(pair)
	logger.Info("certificate read again", slog.String("cert", files.cert), slog.Time("not_after", pair.Leaf.NotAfter))
}

// readPEM reads both files. What cannot be read is left empty.
func readPEM(cert, key string) (pemFiles, error) {
	f := pemFiles{cert: cert, key: key}
	var err error
	if f.certPEM, err = os.ReadFile(cert); err != nil {
		return f, err
	}
	f.keyPEM, err = os.ReadFile(key)
	return f, err
}

func (f pemFiles) parse() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(f.certPEM, f.keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", f.cert, f.key, err)
	}
	return &pair, nil
}
