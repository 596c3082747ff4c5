package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/netns"
)

// Fault is one of those that an operator meets at night.
type Fault struct {
	Name string
	// Picture names its picture, and Shows is the alert that the dashboard names as the cause.
	Picture, Shows string
	// split: the gateways are in a network of their own, which the fault cuts.
	split   bool
	options func(t *testing.T, o *cluster.Options, calm time.Duration)
	cause   func(t *testing.T, n *Night)
	// said is what the first line of status has to say, logged what the log does, and
	// alerts are those that fire, the first one first. Others may not be there.
	said, logged string
	alerts       []string
	// also are alerts that may follow.
	also []string
	// noLease: the first gateway has no lease, so that no gateway can be removed there, as the runbook says.
	noLease bool
}

// Faults are in the order of the page.
var Faults = []Fault{
	{
		Name: "a gateway is killed", Picture: "killed", Shows: "KgateGatewayDown",
		cause: func(t *testing.T, n *Night) { n.signal(t, syscall.SIGKILL, 2) },
		said:  `^One more loss among the 3 voters stops all|^gw-3 is (suspended|lost)`, logged: "gateway lost", alerts: []string{"KgateQuorumAtRisk", "KgateGatewayDown"},
	},
	{
		Name: "the upstream refuses connections", Picture: "refused", Shows: "KgateUpstreamDown",
		cause: func(_ *testing.T, n *Night) { n.upstream.stop() },
		said:  `^pool: http://\S+ is down, for \S+ s: .*connection refused`, logged: "upstream is unhealthy", alerts: []string{"KgateUpstreamDown"},
	},
	{
		Name: "the upstream is silent", Picture: "silent", Shows: "KgateUpstreamSilent",
		cause: func(_ *testing.T, n *Night) { n.upstream.mode.Store(silent) },
		said:  `^pool: http://\S+ has not answered for .*requests wait`, logged: "upstream is silent", alerts: []string{"KgateUpstreamSilent"}, also: []string{"KgateUpstreamFailing"},
	},
	{
		Name: "the upstream is 15 times slower", Picture: "slow", Shows: "KgateUpstreamSlow",
		cause: func(_ *testing.T, n *Night) { n.upstream.mode.Store(slow) },
		said:  `^pool: http://\S+ takes [78]\d\d ms to answer, usually`, logged: "upstream is slow", alerts: []string{"KgateUpstreamSlow"},
	},
	{
		Name: "the upstream answers 500", Picture: "5xx", Shows: "KgateUpstreamFailing",
		cause: func(_ *testing.T, n *Night) { n.upstream.mode.Store(broken) },
		said:  `^pool: http://\S+ answered \d+ of \d+ requests in 60 s with 5xx`, logged: "upstream fails requests", alerts: []string{"KgateUpstreamFailing"},
	},
	{
		Name: "the majority is gone (two gateways stand still)", Picture: "majority", Shows: "KgateNoLease",
		noLease: true, cause: func(t *testing.T, n *Night) { n.signal(t, syscall.SIGSTOP, 1, 2) },
		said: `^This gateway admits nothing: `, logged: "lease lost", alerts: []string{"KgateNoLease", "KgateQuorumAtRisk", "KgateGatewayDown"},
		also: []string{"KgateNoProgress", "KgateRefused", "KgateWaitsLong"},
	},
	{
		Name: "a gateway is cut off from the others", Picture: "cut", Shows: "KgateNoLease", split: true,
		cause: func(t *testing.T, n *Night) { n.network.Set(t, netns.Split(netns.Drop, []int{2}, []int{0, 1})...) },
		said:  `^One more loss among the 3 voters stops all`, logged: "lease lost", alerts: []string{"KgateNoLease", "KgateQuorumAtRisk"},
		also: []string{"KgateRefused", "KgateLeaseLost", "KgateMembersMissing", "KgateViewsDiffer", "KgateNoProgress"},
	},
	{
		Name: "the disk of a gateway fills up", Picture: "disk", Shows: "KgateDiskFull",
		options: func(_ *testing.T, o *cluster.Options, _ time.Duration) { o.Gateways = 2 }, cause: func(t *testing.T, n *Night) { n.fill(t) },
		said: `^gw-3: the disk of data_dir \S+ has 0 MiB of 8 MiB left`, logged: "the disk of data_dir is nearly full", alerts: []string{"KgateDiskFull"},
	},
	{
		Name: "a certificate expires", Picture: "certificate", Shows: "KgateCertificateExpiring",
		options: func(t *testing.T, o *cluster.Options, calm time.Duration) {
			o.ClientTLS = cluster.NewTLSFilesUntil(t, time.Now().Add(calm+10*time.Second))
		}, cause: func(*testing.T, *Night) { time.Sleep(10 * time.Second) },
		said: `the certificate \S+ has expired on`, logged: "a certificate has expired", alerts: []string{"KgateCertificateExpiring"}, also: []string{"KgateCertificateExpiring"},
	},
	{
		Name: "a changed file has a mistake", Picture: "reload", Shows: "KgateReloadFailed",
		cause: func(t *testing.T, n *Night) { n.misspell(t) },
		said:  `^gw-1: the configuration was not read again: .*: polls: unknown key`, logged: "error in the configuration", alerts: []string{"KgateReloadFailed"},
	},
	{
		Name: "k is lowered", Picture: "k", Shows: "KgateKUnlikeConfiguration",
		cause: func(t *testing.T, n *Night) { n.setK(t, cluster.PoolName, 3) },
		said:  `pool pool has k 3, and the configuration here says 6`, logged: "k changed", alerts: []string{"KgateKUnlikeConfiguration"},
	},
	{
		Name: "tickets hold everything", Picture: "tickets", Shows: "KgateTicketsHoldAll",
		cause: func(t *testing.T, n *Night) { n.hoard(t) },
		said:  `^pool: tickets hold all 6 slots, one for .*requests wait`, logged: "tickets hold all slots", alerts: []string{"KgateTicketsHoldAll"},
	},
	{
		Name: "a client takes all places", Picture: "client", Shows: "KgateRefused",
		options: func(_ *testing.T, o *cluster.Options, _ time.Duration) { o.QueueLimit = 60 }, cause: func(t *testing.T, n *Night) { n.crowd(t) },
		said: `^pool: the client \S+ has \d+ of \d+ places(; others wait|, and the queue was full)`, logged: "request refused", alerts: []string{"KgateRefused"}, also: []string{"KgateWaitsLong"},
	},
}

// usualFor is how long all is well before a fault. The alerts that compare with what is usual compare
// with a minute here, not with an hour.
const usualFor = 140 * time.Second

// Night is a fleet that meets a fault.
type Night struct {
	*Fleet
	fault    *Fault
	upstream *faulty
	network  *netns.Network // nil: on loopback
	outside  []string       // command that runs another one where operators are
	dir      string         // on the small disk
}

// StartNight starts the fleet that a fault is going to meet after a while of calm, and the Prometheus that
// scrapes it so often, with these rules.
func StartNight(t *testing.T, f *Fault, calm, scrape time.Duration, rules func(*testing.T, string) string) *Night {
	n := &Night{Fleet: &Fleet{}, fault: f}
	o := cluster.Options{K: k, Durable: true, Lease: 3 * time.Second}
	var at place
	if f.split {
		n.network = netns.New(t, 3)
		o.Hosts, o.Dial, o.Cuts = n.network.Hosts, n.network.Dial, n.network.Cuts
		at.command, at.host = n.network.Outside()
		at.dial = n.network.Dial
		n.outside = at.command
	}
	n.upstream = newFaulty(t, n.network)
	o.Upstream = n.upstream.site.URL()
	if f.options != nil {
		f.options(t, &o, calm)
	}
	n.Cluster = cluster.Start(t, o)
	if o.Gateways == 2 { // the third has a small disk
		n.dir = n.DataDir("gw-3")
		mountDisk(t, n.dir, 8<<20)
		n.Launch(t)
		await(t, func() error { return n.AwaitReady(t.Context()) })
	}
	n.Prometheus = startPrometheus(t, at, n.Gateways, Classic, scrape, rules(t, "rules.yaml"), rules(t, "alerts.yaml"))
	cluster.StartLoad(t, n.Gateways, cluster.LoadOptions{Clients: 4, Dial: o.Dial})
	time.Sleep(calm)
	return n
}

// Meet causes the fault.
func (n *Night) Meet(t *testing.T) { n.fault.cause(t, n) }

// usualSoon writes a copy of a file of rules in which an hour is a minute, and what is usual is what was
// so 100 s ago. Nothing else is faster.
func usualSoon(t *testing.T, name string) string {
	text := strings.NewReplacer("offset 5m", "offset 100s", "[1h]", "[1m]").Replace(read(t, filepath.Join(configs, name)))
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (n *Night) signal(t *testing.T, s syscall.Signal, gateways ...int) {
	for _, i := range gateways {
		if err := n.Gateways[i].Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			t.Cleanup(func() { _ = n.Gateways[i].Signal(syscall.SIGCONT) })
		}
	}
}

// mountDisk puts a small disk where a gateway is going to have its data_dir.
func mountDisk(t *testing.T, dir string, size int) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=700", size), "kgate-test", dir).CombinedOutput(); err != nil {
		t.Skipf("needs to mount a disk (Linux, root): %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
}

func (n *Night) fill(t *testing.T) {
	f, err := os.Create(filepath.Join(n.dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 7<<20+800<<10)); err != nil {
		t.Fatal(err)
	}
}

// hoard takes as many tickets as there are slots, and renews them.
func (n *Night) hoard(t *testing.T) {
	var ids []string
	for range k {
		ids = append(ids, n.ticket(t, cluster.PoolName))
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, id := range ids {
				n.call(t, http.MethodPut, "/.kgate/tickets/"+id, nil)
			}
			select {
			case <-time.After(time.Second):
			case <-quit:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(quit)
		<-done
		for _, id := range ids { // as the runbook says
			n.call(t, http.MethodDelete, "/.kgate/tickets/"+id, nil)
		}
	})
}

// misspell makes a mistake in a gateway's configuration, and has the gateway read it.
func (n *Night) misspell(t *testing.T) {
	f, err := os.OpenFile(n.ConfigFile(n.Gateways[0].Name), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("\npolls: []\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.signal(t, syscall.SIGHUP, 0)
}

// crowd has one client fill the queue of the first gateway.
func (n *Night) crowd(t *testing.T) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	cluster.StartLoad(t, n.Gateways[:1], cluster.LoadOptions{Clients: 200, Dial: from.DialContext})
}

// The modes of a faulty upstream.
const (
	well int32 = iota
	slow
	silent
	broken
)

// faulty is an upstream that does as it is told.
type faulty struct {
	site *site
	mode atomic.Int32
	stop func()
}

func newFaulty(t *testing.T, network *netns.Network) *faulty {
	f := &faulty{site: &site{}}
	if network != nil {
		f.site.listen = network.Listen
	} else {
		f.site.addr = cluster.ReservePort(t)
	}
	f.site.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold := 50 * time.Millisecond
		switch f.mode.Load() {
		case slow:
			hold *= 15
		case silent:
			hold = time.Hour
		case broken:
			defer http.Error(w, "on demand", http.StatusInternalServerError)
		}
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
		}
	})
	f.site.serve(t)
	f.stop = sync.OnceFunc(f.site.close)
	t.Cleanup(f.stop)
	return f
}

// ticket takes a ticket of the pool at the first gateway.
func (f *Fleet) ticket(t *testing.T, pool string) (id string) {
	t.Helper()
	var answer struct{ ID string }
	if err := json.Unmarshal(f.call(t, http.MethodPost, "/.kgate/tickets", map[string]string{"pool": pool, "ttl": "5s"}), &answer); err != nil || answer.ID == "" {
		t.Fatalf("no ticket: %v", err)
	}
	return answer.ID
}

// call asks the first gateway's admin address.
func (f *Fleet) call(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Error(err)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://"+f.Gateways[0].Admin+path, bytes.NewReader(data))
	if err != nil {
		t.Error(err)
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Errorf("%s %s: %s %s %v", method, path, res.Status, answer, err)
	}
	return answer
}

// setK changes the k of a pool, as kgate pool set does.
func (f *Fleet) setK(t *testing.T, pool string, to int) {
	t.Helper()
	f.call(t, http.MethodPost, "/api/v1/pools/"+pool, map[string]int{"k": to})
}
