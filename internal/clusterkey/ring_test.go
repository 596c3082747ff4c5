package clusterkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func ring(t *testing.T, keys ...string) Ring {
	t.Helper()
	r, err := Parse([]byte(strings.Join(keys, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	good := New()
	for _, c := range []struct{ text, wrong string }{
		{good, ""},
		{"# the key of site A\n\n" + good + "\r\n" + New() + "\n", ""},
		{"", "no key in it"},
		{"# nothing\n", "no key in it"},
		{"c2hvcnQ=", "line 1 holds 5 bytes, a key has 32"},
		{good + "\nnot base64", "line 2 is not base64"},
		{good + "\n" + good, "line 2 is there twice"},
		{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "all zeros"},
		{many(maxKeys + 1), "more than 8 keys"},
	} {
		_, err := Parse([]byte(c.text))
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.wrong != "" && (!errors.Is(err, errKey) || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q: error %v, want %q", c.text, err, c.wrong)
		case err != nil && strings.Contains(err.Error(), good):
			t.Errorf("an error shows the key: %v", err)
		}
	}
}

func many(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(New() + "\n")
	}
	return b.String()
}

// TestDerivedForGood pins what is derived: another program version must derive
// the same, or gateways of two versions could not talk.
func TestDerivedForGood(t *testing.T) {
	r := ring(t, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	a, err := newAuthority(r.keys[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := newAuthority(r.keys[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.cert.Raw, b.cert.Raw) {
		t.Error("the authority of one key has two certificates")
	}
	if got := hex.EncodeToString(a.cert.PublicKey.(ed25519.PublicKey)); got != goldenAuthority {
		t.Errorf("authority %s, want %s", got, goldenAuthority)
	}
	pair, err := a.issue("gw-1")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, now := range []time.Time{time.Unix(0, 0), time.Now(), never} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
			t.Errorf("if the clock shows %v: %v", now, err)
		}
	}
}

const goldenAuthority = "fbe8f4750870bd839ad30cdd5acd368c67f9f54c87e652f4168514a3db06ef3d"

// handshake returns the name that the server saw of the client, or the first
// error of either end.
func handshake(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := server.Clone()
	s.ClientAuth, s.ClientCAs = tls.RequireAndVerifyClientCert, s.RootCAs
	c := client.Clone()
	c.InsecureSkipVerify = true // names are checked by who knows them
	c.VerifyConnection = func(state tls.ConnectionState) error {
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: client.RootCAs})
		return err
	}
	failed := make(chan error, 1)
	go func() {
		conn := tls.Client(b, c)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // TLS 1.3: a refusal comes after the handshake
		}
		failed <- err
	}()
	conn := tls.Server(a, s)
	err = conn.Handshake()
	if err == nil {
		_, _ = conn.Write([]byte{1})
	} else {
		_ = a.Close()
	}
	if err = errors.Join(err, <-failed); err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// TestReplaceAKey goes through a replacement step by step: at each step every
// gateway understands those one step before and after it, and at the end the
// old key opens nothing.
func TestReplaceAKey(t *testing.T) {
	old, next, foreign := New(), New(), New()
	steps := []Ring{ring(t, old), ring(t, old, next), ring(t, next, old), ring(t, next)}
	configs := make([]*tls.Config, len(steps))
	for i, r := range steps {
		var err error
		if configs[i], err = r.TLS("gw-1"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range steps {
		for _, j := range []int{i - 1, i, i + 1} {
			if j < 0 || j >= len(steps) {
				continue
			}
			if name, err := handshake(t, configs[i], configs[j]); err != nil || name != "gw-1" {
				t.Errorf("step %d with step %d: %q, %v", i, j, name, err)
			}
		}
	}
	stranger, err := ring(t, foreign).TLS("gw-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*tls.Config{configs[0], stranger} {
		if _, err := handshake(t, configs[3], c); err == nil {
			t.Error("a key that is not in the ring opens a connection to it")
		}
		if _, err := handshake(t, c, configs[3]); err == nil {
			t.Error("a gateway talks to a key that is not in its ring")
		}
	}
}

func TestNoKeyNoTLS(t *testing.T) {
	if _, err := (Ring{}).TLS("gw-1"); !errors.Is(err, errKey) {
		t.Errorf("error %v, want ErrKey", err)
	}
}
