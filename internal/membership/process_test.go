package membership

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// These tests run gateways as processes of their own, with the production's
// links, since only a process can be stopped as a whole.

// childEnv makes this test binary a gateway: name, a space, and whom to join.
const childEnv = "KGATE_TEST_MEMBERSHIP"

// childLease is so long that no machine stands for a third of it.
const childLease = 6 * time.Second

type deaf struct{}

func (deaf) Deliver(kmutex.Node, string, kmutex.Message) error { return nil }

// beGateway runs until its input ends, and prints what happens to it.
func beGateway() {
	name, join, _ := strings.Cut(os.Getenv(childEnv), " ")
	must := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	carrier, agreed := serfring.NewCarrier(), NewCarrier()
	ports, err := transport.Listen(transport.Config{
		Name: name, Listen: "127.0.0.1:0", Handler: deaf{}, Changed: agreed.Changed, PingInterval: childLease / 2,
		Answer: func(ctx context.Context, from transport.Caller, _ string, question []byte) ([]byte, error) {
			return carrier.Answer(ctx, from, question)
		},
		Datagram: func(ch wire.Channel, from transport.Caller, data []byte) {
			carrier.Datagram(ch, from, data)
			agreed.Datagram(ch, from, data)
		},
	})
	must(err)
	boot := name + fmt.Sprint(os.Getpid())
	conf := serfring.Config{
		Name: name, Boot: boot, Version: "test", Expect: 3, Links: ports, Carrier: carrier,
		RetryInterval: 100 * time.Millisecond,
	}
	if join != "" {
		conf.Join = []string{join}
	}
	agent, err := serfring.Start(conf)
	must(err)
	fmt.Println("gossip", ports.Addr())
	c, err := Start(context.Background(), Config{
		Name: name, Boot: boot, PeerAddr: ports.Addr().String(), BootstrapExpect: 3, Joining: join != "",
		Discovery: agent, Links: ports, Carrier: agreed, Lease: childLease,
	})
	must(err)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	watchOneself(c, ports)
}

func watchOneself(c *Cluster, ports *transport.Transport) {
	var node kmutex.Node
	var leader string
	lost := 0
	last := time.Now()
	for tick := time.Tick(5 * time.Millisecond); ; <-tick {
		s, now := c.Standing(), time.Now()
		if gap := now.Sub(last); gap > 500*time.Millisecond {
			fmt.Printf("woke %v\n", s.Valid(now))
		}
		last = now
		if !s.Valid(now) {
			s.Node = 0
			c.Rejoin()
		}
		if s.Node != node {
			node = s.Node
			fmt.Println("stands", uint64(node))
		}
		v := c.View()
		var peers []transport.Peer
		self, _ := c.Self()
		for _, m := range v.Members {
			peers = append(peers, transport.Peer{Node: m.Node, Name: m.Name, Addr: m.PeerAddr})
		}
		ports.SetPeers(self, peers)
		for ; lost < len(v.Lost); lost++ {
			fmt.Println("lost", v.Lost[lost].Name)
		}
		if name, _ := c.Leader(); name != leader {
			leader = name
			fmt.Println("leader", name)
		}
	}
}

// child is such a process.
type child struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Closer

	mu    sync.Mutex
	lines []string
	at    []time.Time
}

func startChild(t *testing.T, name, join string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, name: name, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+name+" "+join)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			c.mu.Lock()
			c.lines, c.at = append(c.lines, scan.Text()), append(c.at, time.Now())
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		c.signal(syscall.SIGKILL)
		<-done
		_ = c.cmd.Wait() // it was killed
		if t.Failed() {
			for i, line := range c.lines {
				t.Logf("%s %s said %q", c.at[i].Format("05.000"), name, line)
			}
		}
	})
	return c
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // it may have ended

// says waits for a line that begins with the words, at or after the given line,
// and returns the rest of it, when it came, and the number of the next.
func (c *child) says(from int, words string) (rest string, at time.Time, next int) {
	c.t.Helper()
	until(c.t, c.name+" says "+words, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := from; i < len(c.lines); i++ {
			if r, ok := strings.CutPrefix(c.lines[i], words); ok {
				rest, at, next = strings.TrimSpace(r), c.at[i], i+1
				return true
			}
		}
		return false
	})
	return rest, at, next
}

func (c *child) said() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lines)
}

// trio starts three and waits until all stand; the leader is the first.
func trio(t *testing.T) []*child {
	t.Helper()
	a := startChild(t, "a", "")
	gossip, _, _ := a.says(0, "gossip ")
	three := []*child{a, startChild(t, "b", gossip), startChild(t, "c", gossip)}
	for _, c := range three {
		for node, next := "0", 0; node == "0"; {
			node, _, next = c.says(next, "stands ")
		}
	}
	var leader string
	for next := 0; leader == ""; {
		leader, _, next = a.says(next, "leader ")
	}
	slices.SortStableFunc(three, func(x, y *child) int {
		switch leader {
		case x.name:
			return -1
		case y.name:
			return 1
		default:
			return 0
		}
	})
	return three
}

// keeps fails the test if the gateway has lost its standing since a line.
func (c *child) keeps(from int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.lines[from:], "stands 0") {
		c.t.Errorf("%s has lost its lease", c.name)
	}
}

func TestProcessKilled(t *testing.T) {
	for i, who := range []string{"leader", "follower"} {
		three := trio(t)
		dead := three[i]
		began := time.Now()
		dead.signal(syscall.SIGKILL)
		for _, c := range three {
			if c != dead {
				_, at, _ := c.says(0, "lost "+dead.name)
				timing.Within(t, fmt.Sprintf("%s killed, %s sees it suspended", who, c.name), at.Sub(began), 1500*time.Millisecond)
			}
		}
	}
}

// A leader that is stopped is deposed and suspended; when it wakes it has no
// standing from its first look at the clock on, whatever it still believes about
// its lead, and comes back as another incarnation.
func TestProcessStopped(t *testing.T) {
	for i, who := range []string{"leader", "follower"} {
		three := trio(t)
		stopped := three[i]
		next := stopped.said()
		old, _, _ := stopped.says(0, "stands ")
		from := make(map[*child]int)
		for _, c := range three {
			from[c] = c.said()
		}
		began := time.Now()
		stopped.signal(syscall.SIGSTOP)
		for _, c := range three {
			if c != stopped {
				_, at, _ := c.says(0, "lost "+stopped.name)
				t.Logf("%s stopped, %s sees it suspended after %v", who, c.name, at.Sub(began))
				if who == "leader" {
					next := ""
					for line := from[c]; next == ""; {
						next, at, line = c.says(line, "leader ")
					}
					t.Logf("%s follows %s after %v", c.name, next, at.Sub(began))
				}
				c.keeps(from[c])
			}
		}
		until(t, "its lease has run out", func() bool { return time.Since(began) > 2*childLease })
		woke := time.Now()
		stopped.signal(syscall.SIGCONT)
		valid, _, _ := stopped.says(next, "woke ")
		if valid != "false" {
			t.Errorf("%s wakes and believes in its standing", who)
		}
		if node, _, _ := stopped.says(next, "stands "); node != "0" {
			t.Errorf("%s goes on as node %s, it was %s", who, node, old)
		}
		_, _, next = stopped.says(next, "stands 0")
		now, at, _ := stopped.says(next, "stands ")
		t.Logf("%s back as node %s after %v, it was %s", who, now, at.Sub(woke), old)
	}
}
