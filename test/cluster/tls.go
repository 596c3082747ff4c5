package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// NewTLSFiles makes an authority and one certificate of it, which proves its
// holder any gateway of a test, or a server on loopback.
func NewTLSFiles(tb testing.TB) *TLSFiles { return NewTLSFilesUntil(tb, time.Now().Add(time.Hour)) }

// NewTLSFilesUntil is NewTLSFiles with a certificate that ends then.
func NewTLSFilesUntil(tb testing.TB, end time.Time) *TLSFiles {
	tb.Helper()
	dir := tb.TempDir()
	files := &TLSFiles{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "gateway"},
		NotBefore: authority.NotBefore, NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"gw-1", "gw-2", "gw-3", "gw-4", "gw-5", "plaintext", "foreign"},
		IPAddresses: []net.IP{{127, 0, 0, 1}},
	}
	authorityKey, leafKey := newKey(tb), newKey(tb)
	writePEM(tb, files.CA, "CERTIFICATE", sign(tb, authority, authority, authorityKey, authorityKey))
	writePEM(tb, files.Cert, "CERTIFICATE", sign(tb, leaf, authority, leafKey, authorityKey))
	der, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		tb.Fatal(err)
	}
	writePEM(tb, files.Key, "PRIVATE KEY", der)
	return files
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func sign(tb testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
