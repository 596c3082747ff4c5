package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kgate/kgate/internal/nametest"
)

// directory is a name server for one service, whose servers are on this machine.
type directory struct {
	mu      sync.Mutex
	records []dnsmessage.SRVResource
}

func (d *directory) set(records ...dnsmessage.SRVResource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = records
}

func (d *directory) answer(q dnsmessage.Question) []dnsmessage.ResourceBody {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []dnsmessage.ResourceBody
	switch {
	case q.Type == dnsmessage.TypeSRV && q.Name.String() == "_http._tcp.service.test.":
		for i := range d.records {
			all = append(all, &d.records[i])
		}
	case q.Type == dnsmessage.TypeA && strings.HasSuffix(q.Name.String(), ".here.test."):
		all = append(all, &dnsmessage.AResource{A: netip.MustParseAddr("127.0.0.1").As4()})
	}
	return all
}

// record returns the record of a server, which goes by the name host.
func record(t *testing.T, s *httptest.Server, host string, priority, weight uint16) dnsmessage.SRVResource {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: uint16(n), Target: dnsmessage.MustNewName(host + ".here.test.")}
}

// split returns how many of n requests each server answers, beside each other.
func (g *gateway) split(n int) map[string]int {
	g.t.Helper()
	seen := make(map[string]int)
	for range n {
		seen[g.served()]++
	}
	return seen
}

func listed(seen map[string]int) string {
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// TestService: the servers of a service are those of its SRV records. Those of a lower
// priority are backups. A change is followed, and no request fails.
func TestService(t *testing.T) {
	one, two, three, backup := named(t, "one"), named(t, "two"), named(t, "three"), named(t, "backup")
	var d directory
	d.set(record(t, two, "two", 1, 1), record(t, backup, "backup", 2, 1), record(t, one, "one", 1, 1))
	nametest.Serve(t, d.answer)
	g := newGateway(t, 1, nil, func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{mustURL(t, "http://_http._tcp.service.test")}
		c.Pools[0].Transport.Resolve = 50 * time.Millisecond
	})
	if got := listed(g.split(20)); got != "one two" {
		t.Errorf("served by %s", got)
	}
	became := func(want string) {
		t.Helper()
		for began := time.Now(); listed(g.split(10)) != want; {
			if time.Since(began) > patience {
				t.Fatalf("not served by %s", want)
			}
			time.Sleep(10 * time.Millisecond) // the recorder does not hold any number of requests
		}
		if got := listed(g.split(20)); got != want {
			t.Errorf("served by %s, want %s", got, want)
		}
	}
	d.set(record(t, three, "three", 1, 0), record(t, backup, "backup", 2, 1), record(t, one, "one", 1, 1))
	became("one three")
	one.Close()
	three.Close()
	became("backup")
	d.set() // no answer: what was known counts
	time.Sleep(200 * time.Millisecond)
	became("backup")
	d.set(dnsmessage.SRVResource{Target: dnsmessage.MustNewName(".")}) // there is no service: RFC 2782
	for began := time.Now(); !strings.HasPrefix(g.answer("/"), "503 "); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("a service that is not available keeps its servers")
		}
	}
	d.set(record(t, two, "two", 1, 1))
	for began := time.Now(); g.answer("/") != "200 two"; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("a service that is available again has no servers")
		}
	}
	for _, u := range g.handler.Upstreams() {
		if u.InFlight != 0 {
			t.Errorf("%+v", u)
		}
	}
}

// TestServiceNotKnownYet: requests are refused until a service is known, and then served.
func TestServiceNotKnownYet(t *testing.T) {
	one := named(t, "one")
	var d directory
	nametest.Serve(t, d.answer)
	g := newGateway(t, 1, nil, func(c *Config) {
		c.Pools[0].Upstreams = []*url.URL{mustURL(t, "http://_http._tcp.service.test")}
		c.Pools[0].Transport.Resolve = 50 * time.Millisecond
	})
	if got := g.answer("/"); !strings.HasPrefix(got, "503 ") {
		t.Errorf("answered %s", got)
	}
	d.set(record(t, one, "one", 1, 1))
	for began := time.Now(); g.answer("/") != "200 one"; {
		if time.Since(began) > patience {
			t.Fatal("the service is not found")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// holdMany keeps n requests in flight, and returns how many each of the upstreams has.
func holdMany(t *testing.T, n int, ups []*gate, change func(*Config), before func(*balancer)) []int {
	t.Helper()
	var urls []*url.URL
	for _, up := range ups {
		urls = append(urls, startHandler(t, func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	}
	g := newGateway(t, n, http.NotFoundHandler(), func(c *Config) {
		c.Pools[0].Upstreams = urls
		change(c)
	})
	before(g.handler.current.Load().balancers["p"])
	for i := range n {
		g.dial().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		g.sem.await(i+1, 0)
	}
	counts := make([]int, len(ups))
	for began, total := time.Now(), 0; total < n; {
		total = 0
		for i, up := range ups {
			counts[i] = len(up.entered)
			total += counts[i]
		}
		if time.Since(began) > patience {
			t.Fatalf("%d of %d requests have come", total, n)
		}
		time.Sleep(time.Millisecond)
	}
	for _, up := range ups {
		close(up.proceed)
	}
	return counts
}

// TestWeights: the upstreams judge that each has its share of what is in flight.
func TestWeights(t *testing.T) {
	got := holdMany(t, 40, []*gate{newGate(), newGate(), newGate()}, func(c *Config) {
		c.Pools[0].Upstreams[0].Fragment = "weight=5"
		c.Pools[0].Upstreams[2].Fragment = "weight=2"
	}, func(*balancer) {})
	if !slices.Equal(got, []int{25, 5, 10}) {
		t.Errorf("with the weights 5, 1 and 2 the upstreams have %v of 40", got)
	}
}

// TestSlowStart: an upstream that comes back has a tenth of its share at first, and all of
// it in the end.
func TestSlowStart(t *testing.T) {
	const slow = 10 * time.Second
	for after, want := range map[time.Duration]float64{0: 0.3, time.Second: 0.3, 5 * time.Second: 1.5, slow: 3, time.Minute: 3} {
		u := &backend{weight: 3, since: time.Now().Add(-after)}
		if got := u.share(slow); got < want-0.01 || got > want+0.01 {
			t.Errorf("%v after it came back its share is %.2f, want %.1f", after, got, want)
		}
	}
	if got := (&backend{weight: 3}).share(slow); got != 3 {
		t.Errorf("one that was always there has a share of %.1f", got)
	}
	got := holdMany(t, 22, []*gate{newGate(), newGate()}, func(c *Config) {
		c.Pools[0].Health = Health{SlowStart: time.Hour}
	}, func(b *balancer) {
		back := b.backends[1]
		back.health.bad = true
		b.reached(back)
	})
	if got[1] != 2 {
		t.Errorf("the upstream that has come back has %v of 22", got)
	}
}

// TestLookUp: a server has one URL, whatever its name server says in a bad moment, and in which letters.
func TestLookUp(t *testing.T) {
	ipv4 := &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}
	ipv6 := &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00::1").As16()}
	srv := &dnsmessage.SRVResource{Port: 8000, Target: dnsmessage.MustNewName("One.Here.TEST.")}
	for name, c := range map[string]struct {
		url        string
		a, aaaa, s []dnsmessage.ResourceBody // nil: the name server fails
		want       string
	}{
		"both kinds":        {a: all(ipv4), aaaa: all(ipv6), want: "http://10.0.0.1:8000/v1"},
		"twice":             {a: all(ipv4, ipv4), aaaa: all(), want: "http://10.0.0.1:8000/v1 http://10.0.0.1:8000/v1"},
		"no IPv6 for now":   {a: all(ipv4), want: "http://10.0.0.1:8000/v1"},
		"no IPv4 for now":   {aaaa: all(ipv6)},
		"IPv6":              {a: all(), aaaa: all(ipv6), want: "http://[fd00::1]:8000/v1"},
		"an address":        {url: "http://[fd00::2]#k_each=2", want: "http://[fd00::2]"},
		"an address, IPv4":  {url: "http://10.0.0.2#k_each=2", want: "http://10.0.0.2"},
		"records":           {url: "http://_http._tcp.llm.test#k_each=2", s: all(srv), want: "http://one.here.test:8000"},
		"no name server":    {},
		"nothing":           {a: all(), aaaa: all()},
		"records, not now":  {url: "http://_http._tcp.llm.test#k_each=2"},
		"records, nothing":  {url: "http://_http._tcp.llm.test#k_each=2", s: all()},
		"no service at all": {url: "http://_http._tcp.llm.test#k_each=2", s: all(&dnsmessage.SRVResource{Target: dnsmessage.MustNewName(".")})},
	} {
		t.Run(name, func(t *testing.T) {
			nametest.Serve(t, func(q dnsmessage.Question) []dnsmessage.ResourceBody {
				answer := map[dnsmessage.Type][]dnsmessage.ResourceBody{dnsmessage.TypeA: c.a, dnsmessage.TypeAAAA: c.aaaa, dnsmessage.TypeSRV: c.s}[q.Type]
				if answer == nil {
					return all(nil)
				}
				return answer
			})
			u := mustURL(t, cmp.Or(c.url, "http://llm.test:8000/v1#k_each=2"))
			got, err := LookUp(t.Context(), u)
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// all is an answer of a name server.
func all(bodies ...dnsmessage.ResourceBody) []dnsmessage.ResourceBody {
	return append([]dnsmessage.ResourceBody{}, bodies...)
}

// TestServiceURLs: what cannot be is refused.
func TestServiceURLs(t *testing.T) {
	for text, wrong := range map[string]string{
		"http://_http._tcp.service.test": "", "tcp://_rsync._tcp.service.test": "", "http://10.0.0.1#weight=1000": "",
		"http://_http._tcp.service.test:80": "which have the port", "http://10.0.0.1#weight=0": "not a weight", "http://10.0.0.1#top": "not a weight", "tcp://10.0.0.1": "tcp://host:port",
	} {
		msgs := fmt.Sprint(checkUpstreams([]*url.URL{mustURL(t, text)}, "http", schemeTCP))
		if (wrong == "") != (msgs == "[]") || !strings.Contains(msgs, wrong) {
			t.Errorf("%s: %s", text, msgs)
		}
	}
	service := mustURL(t, "http://_http._tcp.service.test#weight=2")
	if got := serviceNames([]*url.URL{service, mustURL(t, "http://h"), mustURL(t, "http://_http._tcp.service.test")}); len(got) != 1 {
		t.Errorf("one service is looked up as %q", got)
	}
}
