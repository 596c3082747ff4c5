package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"time"
)

// authority signs the certificates of a cluster's gateways.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// clockSlack is how far the clock of a gateway may be behind ours: a new certificate is
// valid there at once.
const clockSlack = time.Hour

// newAuthority makes an authority that signs gateways but no other authority.
func newAuthority(now time.Time, validity time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "kgate cluster, made " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &authority{cert: template, key: key}
	a.cert, err = a.sign(template, key)
	return a, err
}

// readAuthority reads an authority that newAuthority has written to a folder.
func readAuthority(dir string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		return nil, fmt.Errorf("no authority in %s: %w; make one with --ca, or give its folder with --dir", dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("%s was not made by kgate keygen", filepath.Join(dir, "ca.pem"))
	}
	return &authority{cert: pair.Leaf, key: key}, nil
}

func (a *authority) files() ([]keyFile, error) { return pairFiles("ca", a.cert, a.key) }

// issue returns a certificate for the gateway of this name. It expires with the authority
// at the latest.
func (a *authority) issue(name string, now time.Time, validity time.Duration) ([]keyFile, error) {
	end := now.Add(validity)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	if !end.After(now) {
		return nil, fmt.Errorf("the authority has expired on %s; make another one in another folder, and give the gateways both", a.cert.NotAfter.Format(time.DateOnly))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := a.sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		DNSNames:  []string{name},
		NotBefore: now.Add(-clockSlack), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Either of two gateways may dial the other.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
	if err != nil {
		return nil, err
	}
	return pairFiles(name, cert, key)
}

// sign makes a certificate of a template, which gets a random serial number.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// pairFiles returns NAME.pem and NAME-key.pem.
func pairFiles(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) ([]keyFile, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return []keyFile{
		{name + ".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), false},
		{name + "-key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), true},
	}, nil
}
