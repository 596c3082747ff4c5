package cluster_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

// A process ends with any of its writes: right after it, and with what came behind it lost. The upstream
// never sees more than k, and all come back.
func TestCrashAtEveryWrite(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	crashes := 0
	for _, early := range []bool{false, true} {
		for host := range 3 {
			for at := 1 + host; ; at += step {
				c := busy(uint64(at), 3, early, nil)
				c.Host(host).CrashAt(at)
				run(t, c, 2*time.Second)
				for k := range 6 {
					c.SetK(k%3 + 2)
					run(t, c, 200*time.Millisecond)
				}
				if c.Host(host).Writes() < at {
					break // there are no more
				}
				crashes++
				c.Host(host).CrashAt(0)
				c.Start(host)
				run(t, c, leaseTime*11/10+3*time.Second)
				if err := c.Settled(nil); err != nil {
					t.Fatalf("early %t: host %d ends with write %d: %v", early, host, at, err)
				}
			}
		}
	}
	if t.Logf("%d crashes", crashes); crashes < 90/step {
		t.Errorf("%d crashes are few", crashes)
	}
}

// busy is a cluster of hosts that all always have requests.
func busy(seed uint64, hosts int, early bool, trace io.Writer) *cluster.Cluster {
	var c *cluster.Cluster
	c = cluster.New(cluster.Config{
		Seed: seed, Hosts: hosts, Members: 3, K: k, Early: early, Network: network.Jitter{Base: time.Millisecond, Extra: time.Millisecond},
		Ask: 12 * time.Millisecond, Lease: leaseTime, Write: 5 * time.Millisecond, Trace: trace,
		Due: func(n uint64) {
			c.Request(int(n)%hosts, 30*time.Millisecond, 0)
			c.At(c.Now()+20*time.Millisecond, n+1)
		},
	})
	c.At(0, 0)
	return c
}

// A seed tells all that happens, byte for byte: an election, a voter that is replaced, and a gateway
// that joins.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(3) {
		var traces [2]bytes.Buffer
		for i := range traces {
			c := busy(seed, 4, false, &traces[i])
			run(t, c, 2*time.Second)
			first, elected := c.Leads(), c.Elected()
			c.Start(3)
			run(t, c, 2*time.Second)
			c.Kill(first)
			run(t, c, 6*time.Second)
			voters, votes := c.Voters()
			if c.Elected() == elected || fmt.Sprint(voters) != fmt.Sprint(without(first)) || votes != 3 || len(c.View().Members) != 3 {
				t.Fatalf("seed %d: %d leaders, %v vote, members %v", seed, c.Elected(), voters, c.View().Members)
			}
		}
		if !bytes.Equal(traces[0].Bytes(), traces[1].Bytes()) || traces[0].Len() == 0 {
			t.Errorf("seed %d has two traces", seed)
		}
	}
}

func without(host int) (hosts []int) {
	for i := range 4 {
		if i != host {
			hosts = append(hosts, i)
		}
	}
	return hosts
}

// A gateway whose disk hangs follows no view. Once it is out it stays out until its disk goes on, and
// the others serve meanwhile; what it has asked for is agreed on once.
func TestDiskHangs(t *testing.T) {
	c := busy(1, 3, false, nil)
	run(t, c, 2*time.Second)
	host := (c.Leads() + 1) % 3
	h := c.Host(host)
	h.Hang()
	for _, k := range []int{2, 3} {
		h.Propose(views.Command{SetK: &views.SetK{Name: "pool", K: k}})
		run(t, c, time.Second)
	}
	if got := c.Pool(); got.K != 3 || got.Epoch > 4 {
		t.Errorf("k %d in epoch %d", got.K, got.Epoch)
	}
	c.Suspect(host)
	run(t, c, leaseTime*11/10+2*time.Second)
	out, served := c.Pool().Epoch, c.Served()
	run(t, c, 20*time.Second)
	if _, in := c.View().Named(h.Name); in || c.Pool().Epoch != out || c.Served() < served+500 {
		t.Errorf("it is in: %t; epoch %d after %d; %d served", in, c.Pool().Epoch, out, c.Served()-served)
	}
	h.Unhang()
	run(t, c, 3*time.Second)
	if err := c.Settled(nil); err != nil {
		t.Error(err)
	}
}

// While k is set again and again, a gateway whose disk hangs is behind all the time, and the epochs wait for it. It
// is out within half a lease and a renewal or two, and the others are served again, at the latest when its
// lease has run out: it may have had all tokens.
func TestDiskHangsAsViewsCome(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, leaseTime} {
		c := busy(1, 3, false, nil)
		run(t, c, 2*time.Second)
		host := (c.Leads() + 1) % 3
		h := c.Host(host)
		h.Hang()
		hung, out, quiet := c.Now(), time.Duration(0), time.Duration(0)
		since, other := hung, c.Request((host+1)%3, 0, 0)
		for c.Now() < hung+6*leaseTime {
			if (c.Now()-hung)%every == 0 {
				c.SetK(2 + int((c.Now()-hung)/every)%2)
			}
			run(t, c, 10*time.Millisecond)
			if other.Outcome() == "served" {
				since, other = c.Now(), c.Request((host+1)%3, 0, 0)
			}
			quiet = max(quiet, c.Now()-since)
			if _, in := c.View().Named(h.Name); !in && out == 0 {
				out = c.Now() - hung
			} else if in && out > 0 {
				t.Fatalf("k set every %v: in again after %v", every, c.Now()-hung)
			}
		}
		t.Logf("k set every %v: out after %v, at most %v without a request of another served", every, out, quiet)
		if out == 0 || out > leaseTime*6/10 || quiet > leaseTime*17/10 {
			t.Error("it is out late, or the others are not served")
		}
	}
}
