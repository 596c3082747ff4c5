package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/peercert"
)

func onlyFor(usage x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{usage} }
}

func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames = name, nil }
}

// trusting returns config with the authorities of others beside its own, as
// while one is replaced.
func trusting(t *testing.T, config *tls.Config, authorities ...*pki) *tls.Config {
	t.Helper()
	config = config.Clone()
	config.RootCAs = config.RootCAs.Clone()
	for _, a := range authorities {
		config.RootCAs.AddCert(a.cert)
	}
	return config
}

// TestLinkHasThePeersName: a certificate of the right authority is not enough.
// Whichever end dials, the other's name must be the one in the view.
func TestLinkHasThePeersName(t *testing.T) {
	pki := newPKI(t)
	for _, c := range []struct {
		name       string
		one, other string // what the view calls nodes 1 and 2
		up         bool
	}{
		{"as the view says", "gw-1", "gw-2", true},
		{"the dialled one is another", "gw-1", "gw-3", false},
		{"the dialling one is another", "gw-3", "gw-2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := [2]*counter{newCounter(), newCounter()}
			t1 := listen(t, Config{Name: "gw-1", TLS: pki.peer(t, named("gw-1")), Observer: seen[0]})
			t2 := listen(t, Config{Name: "gw-2", TLS: pki.peer(t, named("gw-2")), Observer: seen[1]})
			peers := []Peer{{Node: 1, Name: c.one, Addr: t1.Addr().String()}, {Node: 2, Name: c.other, Addr: t2.Addr().String()}}
			setPeers(t1, 1, peers)
			setPeers(t2, 2, peers)
			if c.up {
				waitUp(t, t1, t2)
				return
			}
			eventually(t, "it is refused, and why is counted", func() bool {
				return seen[0].count(CauseCertificate)+seen[1].count(CauseCertificate) >= 3
			})
			if statesOf(t1)[0].Up || statesOf(t2)[0].Up {
				t.Error("the link is up")
			}
			if c.one == "gw-3" { // node 2 looks for another, and node 1 learns why
				eventually(t, "the one that dials is told why", func() bool {
					return strings.Contains(statesOf(t1)[0].Err, errNoView.Error())
				})
			}
		})
	}
}

// TestAuthorityReplaced goes through a replacement of the authority in its four
// steps. No message is lost, and at the end nobody is connected who has only a
// certificate of the old one.
func TestAuthorityReplaced(t *testing.T) {
	before, after := newPKI(t), newPKI(t)
	holder := listen(t, Config{Name: "gw-3", TLS: trusting(t, before.peer(t), after)}) // has got no new certificate
	t1, t2 := listen(t, Config{TLS: before.peer(t)}), listen(t, Config{TLS: before.peer(t)})
	join(t1, t2, holder)
	waitUp(t, t1, t2, holder)
	for _, step := range []func() *tls.Config{
		func() *tls.Config { return trusting(t, before.peer(t), after) },
		func() *tls.Config { return trusting(t, after.peer(t), before) },
	} {
		for _, tr := range []*Transport{t1, t2} {
			if err := tr.SetTLS(step()); err != nil {
				t.Fatal(err)
			}
		}
		waitUp(t, t1, t2, holder)
		if s := statesOf(t1); s[0].Reconnects+s[1].Reconnects != 0 {
			t.Fatalf("a link was broken though both ends were good: %+v", s)
		}
	}
	for _, tr := range []*Transport{t1, t2} {
		if err := tr.SetTLS(after.peer(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the two are linked by new certificates, the holder of the old one is out", func() bool {
		s1, s2 := statesOf(t1), statesOf(t2)
		return s1[0].Up && s2[0].Up && !s1[1].Up && !s2[1].Up
	})
	if err := errors.Join(t1.SetTLS(nil), t1.SetTLS(&tls.Config{})); !errors.Is(err, errConfig) {
		t.Errorf("unusable configurations: %v", err)
	}
	open := listen(t, Config{})
	if err := open.SetTLS(before.peer(t)); !errors.Is(err, errConfig) {
		t.Errorf("TLS on a plaintext transport: %v", err)
	}
}

// TestCertificateEndsInUse: a link ends with the certificate that it was made
// with, though nothing else happens.
func TestCertificateEndsInUse(t *testing.T) {
	memnet.Test(t, func(t *testing.T) {
		const life = 2*reviewInterval + time.Second // it has been reviewed before
		pki, ends := newPKI(t), time.Now().Add(life)
		t1, t2 := listen(t, Config{TLS: pki.peer(t)}), listen(t, Config{TLS: pki.peer(t, func(c *x509.Certificate) { c.NotAfter = ends })})
		join(t1, t2)
		waitUp(t, t1, t2)
		eventually(t, "the link is down", func() bool { return !statesOf(t1)[0].Up })
		if late := time.Since(ends); late < 0 || late > reviewInterval {
			t.Errorf("it goes down %v after its certificate has ended", late)
		}
		for range 60 { // attempts to dial
			if time.Sleep(time.Second); statesOf(t1)[0].Up {
				t.Fatal("the link is up again")
			}
		}
	})
}

func TestCheck(t *testing.T) {
	ours, theirs := newPKI(t), newPKI(t)
	roots := ours.peer(t).RootCAs
	for _, c := range []struct {
		pair  *tls.Config
		wrong string
	}{
		{ours.peer(t, named("gw-1")), ""},
		{ours.peer(t, named("x"), func(c *x509.Certificate) { c.DNSNames = []string{"gw-1.example.com", "gw-1"} }), ""},
		{ours.peer(t, named("gw-2")), "another gateway's"},
		{theirs.peer(t, named("gw-1")), "unknown authority"},
		{ours.peer(t, named("gw-1"), onlyFor(x509.ExtKeyUsageClientAuth)), "incompatible key usage"},
		{ours.peer(t, named("gw-1"), onlyFor(x509.ExtKeyUsageServerAuth)), "incompatible key usage"},
	} {
		until, err := peercert.Check(c.pair.Certificates[0], roots, "gw-1")
		switch {
		case c.wrong == "" && (err != nil || time.Until(until) <= 0):
			t.Errorf("%v until %v", err, until)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("error %v, want %q", err, c.wrong)
		}
	}
}
