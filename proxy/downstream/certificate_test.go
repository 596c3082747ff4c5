package downstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pairFiles are a certificate's files, in a directory of their own.
type pairFiles struct {
	t         testing.TB
	cert, key string
}

func newPairFiles(t testing.TB) pairFiles {
	dir := t.TempDir()
	return pairFiles{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

func (f pairFiles) files() []CertificateFiles { return []CertificateFiles{{Cert: f.cert, Key: f.key}} }

// make returns a certificate with this serial number, for localhost unless it is for other
// names, and its key.
func (f pairFiles) make(serial int64, names ...string) (cert, key []byte) {
	f.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	if names == nil {
		names = []string{"localhost"}
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		f.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		f.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (f pairFiles) write(cert, key []byte) {
	f.t.Helper()
	for name, data := range map[string][]byte{f.cert: cert, f.key: key} {
		if data == nil {
			continue
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestCertificate: what is put in the files' place is used, unless it is broken;
// a half that comes first does no harm.
func TestCertificate(t *testing.T) {
	files := newPairFiles(t)
	if _, err := LoadCertificates(files.files(), nil); err == nil {
		t.Fatal("files that are not there were loaded")
	}
	files.write(files.make(1))
	var log bytes.Buffer
	pair, err := LoadCertificates(files.files(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	nextCert, nextKey := files.make(2)
	other := newPairFiles(t)
	other.write(files.make(3))
	for _, step := range []struct {
		name   string
		do     func() error
		serial int64
		logged string
	}{
		{"nothing new", func() error { return nil }, 1, ""},
		{"rubbish", func() error { files.write([]byte("rubbish"), nil); return nil }, 1, "cannot be used"},
		{"the same rubbish", func() error { return nil }, 1, ""},
		{"one half", func() error { files.write(nextCert, nil); return nil }, 1, "cannot be used"},
		{"both", func() error { files.write(nil, nextKey); return nil }, 2, "read again"},
		{"gone", func() error { return os.Remove(files.key) }, 2, "cannot be used"},
		{"back", func() error { files.write(nil, nextKey); return nil }, 2, "read again"},
		{"other files", func() error {
			use, err := pair.Read(other.files())
			if err == nil {
				use()
			}
			return err
		}, 3, ""},
		{"other files that do not fit", func() error {
			if _, err := pair.Read([]CertificateFiles{{files.cert, other.key}}); err == nil {
				t.Error("a certificate was taken with the key of another")
			}
			return nil
		}, 3, ""},
	} {
		log.Reset()
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		pair.refresh()
		got, err := pair.Get(nil)
		if err != nil || got.Leaf.SerialNumber.Int64() != step.serial {
			t.Errorf("%s: certificate %v, %v; want %d", step.name, got.Leaf.SerialNumber, err, step.serial)
		}
		if (step.logged == "") != (log.Len() == 0) || !strings.Contains(log.String(), step.logged) {
			t.Errorf("%s: logged %q", step.name, log.String())
		}
	}
}

// TestCertificateWatched: nobody has to ask for it.
func TestCertificateWatched(t *testing.T) {
	files := newPairFiles(t)
	files.write(files.make(1))
	synctest.Test(t, func(t *testing.T) {
		pair, err := LoadCertificates(files.files(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go pair.Watch(ctx)
		synctest.Wait()
		files.write(files.make(2))
		time.Sleep(certificateInterval)
		synctest.Wait()
		if got, err := pair.Get(nil); err != nil || got.Leaf.SerialNumber.Int64() != 2 {
			t.Errorf("certificate %v, %v; want 2", got.Leaf.SerialNumber, err)
		}
	})
}

// TestCertificatesByName: a client gets the certificate of the server that it asks for.
func TestCertificatesByName(t *testing.T) {
	var files []CertificateFiles
	for i, names := range [][]string{{"default.test"}, {"*.example.com", "Example.com"}, {"a.example.com"}, {"*.example.com"}, {"*.a.example.com", "default.test"}} {
		f := newPairFiles(t)
		f.write(f.make(int64(i), names...))
		files = append(files, f.files()...)
	}
	certs, err := LoadCertificates(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: certs.Get})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
		}
	})
	for name, want := range map[string]int64{
		"default.test": 0, "": 0, "unknown.test": 0, "example.com": 1, "EXAMPLE.com": 1, "b.example.com": 1, "a.example.com": 2, "a.Example.com.": 2,
		"b.a.example.com": 4, "c.b.a.example.com": 0, "com": 0, "example.com.evil": 0,
	} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, ServerName: name})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("%q gets certificate %d, want %d", name, got, want)
		}
		_ = conn.Close()
	}
	if n := len(certs.Expiry()); n != 5 {
		t.Errorf("%d certificates end", n)
	}
}
