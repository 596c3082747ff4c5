package membership

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// TestGossipTakesNobodyOut: that a gateway leaves is only its own word, over the
// peer port. Gossip can be forged, and then its tokens would be given to others
// while its requests run.
func TestGossipTakesNobodyOut(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
	})
}

// by is the state of a connection with a certificate of that name.
func by(name string) *tls.ConnectionState {
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}}
}

// TestWhoMayAskForWhat: over TLS a gateway speaks for itself only, and what people
// change needs their token.
func TestWhoMayAskForWhat(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		const lease = 10 * time.Second // however busy the machine, b stays who it is
		a := n.start(t, "a", config{expect: 1, lease: lease})
		b := n.start(t, "b", config{expect: 1, lease: lease, joining: true, join: []string{a.gossip}})
		a.ready()
		b.ready()
		own, _ := b.Self()
		leader := a.stats().Server
		tokens := []string{"new-token", "old-token"}
		for _, c := range []struct {
			name   string
			caller *tls.ConnectionState
			token  string
			cmd    views.Command
			wrong  string
		}{
			{"goes itself", by("b"), "", views.Command{Remove: &views.Remove{Node: own}}, ""},
			{"takes another out", by("a"), "", views.Command{Remove: &views.Remove{Node: own}}, "itself only"},
			{"takes one out who is gone already", by("a"), "", views.Command{Remove: &views.Remove{Node: 1 << 40}}, ""},
			{"without TLS nobody can tell", nil, "", views.Command{Remove: &views.Remove{Node: own}}, ""},
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
			data, err := views.Encode(c.cmd)
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				r.Header.Set(adminProofHeader, adminProof(c.token, leader, data))
			}
			err = a.allowed(r, c.cmd, data)
			switch {
			case c.wrong == "" && err != nil:
				t.Errorf("%s: %v", c.name, err)
			case c.wrong != "" && (!errors.Is(err, ErrCommand) || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("%s: error %v, want %q", c.name, err, c.wrong)
			}
		}
	})
}

// TestThievesLearnNoToken: a leader that has only a certificate records what it is asked. It
// never sees the token, and what it sees is good for that command at that leader only.
func TestThievesLearnNoToken(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		const token, next = "the-token-before", "the-token-after-it"
		const lease = 10 * time.Second // however busy the machine, a leads
		a := n.start(t, "a", config{expect: 1, lease: lease, tokens: []string{next, token}})
		a.ready()
		type asked struct{ proof, data string }
		seen := make(chan asked, 100)
		honest := a.control.Handler
		lies(t, a, pathCommands, func(w http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			if all := fmt.Sprint(r.URL, r.Header, string(data)); strings.Contains(all, token) {
				t.Errorf("the leader sees the token: %s", all)
			}
			if cmd, err := views.DecodeCommand(data); err == nil && cmd.Define != nil {
				seen <- asked{r.Header.Get(adminProofHeader), string(data)}
			}
			r.Body = io.NopCloser(bytes.NewReader(data))
			honest.ServeHTTP(w, r)
		})
		b := n.start(t, "b", config{expect: 1, lease: lease, joining: true, join: []string{a.gossip}, tokens: []string{token}})
		b.ready()
		define(t, b, "p", 3)
		got, leader := <-seen, a.stats().Server
		other, err := views.Encode(setK("p", 4))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, header, value, data string
			ok                        bool
		}{
			{"again", adminProofHeader, got.proof, got.data, true},
			{"another command", adminProofHeader, got.proof, string(other), false},
			{"meant for another leader", adminProofHeader, adminProof(token, b.stats().Server, other), string(other), false},
			{"meant for another incarnation", adminProofHeader, adminProof(token, leader+"0", other), string(other), false},
			{"the token as proof", adminProofHeader, token, string(other), false},
			{"the token, as older gateways show it", "Kgate-Admin-Token", token, string(other), false},
		} {
			r := httptest.NewRequest("POST", pathCommands, strings.NewReader(c.data))
			r.Header.Set(c.header, c.value)
			w := httptest.NewRecorder()
			a.serveCommand(w, r)
			refused := w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), "proof of the admin token")
			if ok := w.Code == http.StatusOK; ok != c.ok || refused == c.ok {
				t.Errorf("%s: status %d, %s", c.name, w.Code, w.Body)
			}
		}
	})
}

// TestOwnLeaseOnly: a gateway cannot renew another's lease.
func TestOwnLeaseOnly(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
	})
}

// lies lets the holder of a gateway's certificate answer in its place.
func lies(t *testing.T, g *gateway, path string, answer http.HandlerFunc) {
	t.Helper()
	if raceDetector {
		t.Skip("another handler for a server that runs: the race detector would see this race of the test")
	}
	honest := g.control.Handler
	g.control.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			answer(w, r)
			return
		}
		honest.ServeHTTP(w, r)
	})
}
