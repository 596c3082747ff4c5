package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// certificateInterval is how often a certificate's files are read again. Reading
// them costs nothing that anybody would notice, and tells more than their times
// do: some tools keep those, and swap directories.
const certificateInterval = 5 * time.Second

// Certificate is a server's certificate with its key, read again when their files
// change. It is safe for concurrent use.
type Certificate struct {
	logger  *slog.Logger
	current atomic.Pointer[tls.Certificate]

	mu    sync.Mutex
	files pemFiles
}

// pemFiles are a certificate's files, as they were read last.
type pemFiles struct {
	cert, key       string
	certPEM, keyPEM []byte
}

// LoadCertificate reads a certificate chain and its key from PEM files. A nil
// logger discards.
func LoadCertificate(cert, key string, logger *slog.Logger) (*Certificate, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	c := &Certificate{logger: logger}
	use, err := c.Read(cert, key)
	if err != nil {
		return nil, err
	}
	use()
	return c, nil
}

// Read reads a certificate and its key from other files, and changes nothing until use
// is called. From then on the certificate is that of these files.
func (c *Certificate) Read(cert, key string) (use func(), err error) {
	files, err := readPEM(cert, key)
	if err != nil {
		return nil, err
	}
	pair, err := files.parse()
	if err != nil {
		return nil, err
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.files = files
		c.current.Store(pair)
	}, nil
}

// File returns the name of the file that the certificate is read from.
func (c *Certificate) File() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files.cert
}

// Get is a tls.Config's GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Watch reads the files again every few seconds until ctx ends. What cannot be
// used is logged, once, and the last good pair stays: tools that renew
// certificates write one file after the other.
func (c *Certificate) Watch(ctx context.Context) {
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

func (c *Certificate) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
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
		c.logger.Error("the changed certificate cannot be used: keeping the last good one",
			slog.String("cert", files.cert), slog.String("key", files.key), slog.Any("error", err))
		return
	}
	c.current.Store(pair)
	c.logger.Info("certificate read again", slog.String("cert", files.cert), slog.Time("not_after", pair.Leaf.NotAfter))
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
