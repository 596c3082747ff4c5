package membership

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/kmutex"
)

// TestGossipTakesNobodyOut: that a gateway leaves is only its own word, over the
// peer port. Gossip can be forged, and then its tokens would be given to others
// while its requests run.
func TestGossipTakesNobodyOut(t *testing.T) {
	var n network
	const lease = time.Second
	three := n.leased(t, lease, nil)
	leader := leaderOf(t, three)
	victim := three[0]
	if victim == leader {
		victim = three[1]
	}
	before := victim.stands().Node
	if err := victim.agent.Leave(); err != nil {
		t.Fatal(err)
	}
	until(t, "the leader believes the farewell", func() bool {
		p, _ := find(leader.agent.Members(), victim.name)
		return p.Status == serfring.StatusLeft
	})
	for deadline := time.Now().Add(3 * lease); time.Now().Before(deadline); time.Sleep(lease / 20) {
		if m, in := leader.View().Named(victim.name); !in || m.Node != before || len(leader.View().Lost) > 0 {
			t.Fatalf("gossip alone took node %d out: %+v", before, leader.View())
		}
	}
}

// by is the state of a connection with a certificate of that name.
func by(name string) *tls.ConnectionState {
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}}
}

// TestWhoMayAskForWhat: over TLS a gateway speaks for itself only, and what people
// change needs their token.
func TestWhoMayAskForWhat(t *testing.T) {
	var n network
	const lease = 10 * time.Second // however busy the machine, b stays who it is
	a := n.start(t, "a", config{expect: 1, lease: lease})
	b := n.start(t, "b", config{expect: 1, lease: lease, joining: true, join: []string{a.gossip}})
	a.ready()
	b.ready()
	own, _ := b.Self()
	tokens := []string{"new-token", "old-token"}
	for _, c := range []struct {
		name   string
		caller *tls.ConnectionState
		token  string
		cmd    command
		wrong  string
	}{
		{"goes itself", by("b"), "", command{Remove: &removeCommand{Node: own}}, ""},
		{"takes another out", by("a"), "", command{Remove: &removeCommand{Node: own}}, "itself only"},
		{"takes one out who is gone already", by("a"), "", command{Remove: &removeCommand{Node: 1 << 40}}, ""},
		{"without TLS nobody can tell", nil, "", command{Remove: &removeCommand{Node: own}}, ""},
		{"defines a pool", by("b"), "new-token", pool("p", 3), ""},
		{"defines a pool without the token", by("b"), "", pool("p", 3), "admin token"},
		{"defines a pool and is no member", by("c"), "new-token", pool("p", 3), "not from a member"},
		{"sets k and is no member", by("c"), "new-token", setK("p", 4), "not from a member"},
		{"shows no certificate", &tls.ConnectionState{}, "new-token", pool("p", 3), "no certificate"},
		{"judges another", by("b"), "", expire(own), "only the leader"},
		{"lets one in", by("b"), "", join("c", "x"), "only the leader"},
		{"sets k", by("b"), "new-token", setK("p", 4), ""},
		{"sets k with the token before", by("b"), "old-token", setK("p", 4), ""},
		{"sets k without the token", by("b"), "", setK("p", 4), "admin token"},
		{"sets k with another token", by("b"), "new-token-", setK("p", 4), "admin token"},
		{"suspends without the token", by("b"), "", suspend(own), "admin token"},
	} {
		a.Cluster.config.AdminTokens = func() []string { return tokens }
		r := httptest.NewRequest("POST", pathCommands, nil)
		r.TLS = c.caller
		r.Header.Set(adminTokenHeader, c.token)
		err := a.allowed(r, c.cmd)
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.wrong != "" && (!errors.Is(err, ErrCommand) || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: error %v, want %q", c.name, err, c.wrong)
		}
	}
}

// TestOwnLeaseOnly: a gateway cannot renew another's lease.
func TestOwnLeaseOnly(t *testing.T) {
	var n network
	a := n.start(t, "a", config{expect: 1})
	a.ready()
	own, _ := a.Self()
	for _, c := range []struct {
		caller *tls.ConnectionState
		node   kmutex.Node
		status int
	}{{by("b"), own, 403}, {by("a"), own, 0}, {nil, own, 0}} {
		body := strings.NewReader(fmt.Sprintf(`{"node": %d}`, c.node))
		r := httptest.NewRequest("POST", pathLease, body)
		r.TLS = c.caller
		w := httptest.NewRecorder()
		a.serveLease(w, r)
		if c.status != 0 && w.Code != c.status || c.status == 0 && w.Code == 403 {
			t.Errorf("%v: status %d", callerNames(r), w.Code)
		}
	}
}
