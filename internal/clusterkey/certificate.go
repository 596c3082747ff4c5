package clusterkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// The certificates are valid at any time that a clock may show. One without a battery
// begins with 1970.
var (
	always = time.Unix(0, 0).UTC()
	// never is the date that RFC 5280, 4.1.2.5, sets for no end.
	never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// TLS returns a configuration for mutual TLS 1.3 as the gateway of that name:
// its certificate comes from the first key, and those of every key are accepted.
func (r Ring) TLS(name string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	var own *authority
	for _, key := range r.keys {
		a, err := newAuthority(key)
		if err != nil {
			return nil, err
		}
		if own == nil {
			own = a
		}
		roots.AddCert(a.cert)
	}
	if own == nil {
		return nil, fmt.Errorf("%w: no key", errKey)
	}
	pair, err := own.issue(name)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, nil
}

// authority signs certificates on behalf of one key.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

func newAuthority(key []byte) (*authority, error) {
	signer := ed25519.NewKeyFromSeed(derive(key, "kgate authority v1"))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "kgate cluster key"},
		NotBefore:    always, NotAfter: never,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: signer}
	var err error
	a.cert, err = a.sign(template, template, signer.Public())
	return a, err
}

// issue makes a key and a certificate for it.
func (a *authority) issue(name string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := a.sign(&x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    always, NotAfter: never,
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Of two gateways either one dials.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, public)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: private, Leaf: cert}, nil
}

func (a *authority) sign(template, parent *x509.Certificate, public any) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
