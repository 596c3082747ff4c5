package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// Both networks are in namespaces only; no address is taken on the machine.
const (
	peers   = "10.77.1."
	clients = "10.77.2."
	outside = clients + "254"
)

// prefix of all names: namespaces of other programs are left alone.
const prefix = "kgatetest-"

// Network is namespaces for gateways, and what joins them.
type Network struct {
	// Hosts of the gateways.
	Hosts []cluster.Host

	tag    string // of this network's namespaces
	faults faults
	relay  *relay // between the gateways; nil: a bridge
}

// New makes a network for n gateways, which ends with the test. Where it cannot
// be made, the test is skipped, with a reason; with CI=true it fails.
func New(tb testing.TB, n int) *Network { return NewDelayed(tb, n, 0) }

// NewDelayed is New; each packet from one gateway to another arrives after the
// delay. Clients and upstream are as near as ever.
func NewDelayed(tb testing.TB, n int, delay time.Duration) *Network {
	tb.Helper()
	nw := &Network{tag: newTag(tb)}
	if err := nw.build(n, delay); err != nil {
		tb.Fatal(err)
	}
	if nw.relay != nil {
		tb.Cleanup(nw.relay.Close)
	}
	return nw
}

// Machine is a namespace with one address.
type Machine struct {
	// Command runs the command that is appended to it on the machine.
	Command []string
}

// Machines makes one machine per address, given with the length of its prefix,
// all on one wire. They end with the test, and all that runs there. Where they
// cannot be made, the test is skipped, with a reason; with CI=true it fails.
func Machines(tb testing.TB, addrs ...string) []Machine {
	tb.Helper()
	tag := newTag(tb)
	wire := tag + "wire"
	if err := errors.Join(add(wire), ip("-n", wire, "link", "add", "wire", "up", "type", "bridge")); err != nil {
		tb.Fatal(err)
	}
	var all []Machine
	for i, addr := range addrs {
		name := "m" + strconv.Itoa(i+1)
		if err := errors.Join(add(tag+name), cable(wire, "wire", name, tag+name, addr)); err != nil {
			tb.Fatal(err)
		}
		all = append(all, Machine{Command: []string{"ip", "netns", "exec", tag + name}})
	}
	return all
}

// networks counts those of this process.
var networks atomic.Int64

// newTag returns the beginning of the names of a network's namespaces, which are
// removed at the end of the test.
func newTag(tb testing.TB) string {
	tb.Helper()
	if why := missing(); why != "" {
		if os.Getenv("CI") == "true" {
			tb.Fatal(why) // what CI does not run is not tested
		}
		tb.Skip(why)
	}
	if err := removeLeftovers(); err != nil {
		tb.Fatal(err)
	}
	tag := fmt.Sprintf("%s%d-%d-", prefix, os.Getpid(), networks.Add(1))
	tb.Cleanup(func() {
		if err := remove(tag); err != nil {
			tb.Error(err)
		}
	})
	return tag
}

// missing says what the machine lacks.
func missing() string {
	if namespaceDir == "" {
		return "needs Linux: there are no network namespaces here"
	}
	if os.Geteuid() != 0 {
		return "needs root, to make network namespaces"
	}
	for tool, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("needs %s (Debian: apt-get install %s)", tool, pkg)
		}
	}
	return ""
}

func (nw *Network) namespace(name string) string { return nw.tag + name }

func (nw *Network) gateway(i int) string { return nw.namespace(strconv.Itoa(i + 1)) }

// build makes the namespaces, the bridges and a cable from each gateway to both.
// With a delay, a relay takes the place of the bridge between the gateways.
func (nw *Network) build(n int, delay time.Duration) error {
	bridges, world := nw.namespace("bridges"), nw.namespace("outside")
	for _, ns := range []string{bridges, world} {
		if err := add(ns); err != nil {
			return err
		}
	}
	for _, bridge := range []string{"peers", "clients"} {
		if err := ip("-n", bridges, "link", "add", bridge, "up", "type", "bridge"); err != nil {
			return err
		}
	}
	if err := cable(bridges, "clients", "outside", world, outside+"/24"); err != nil {
		return err
	}
	for i := range n {
		ns, host := nw.gateway(i), strconv.Itoa(i+1)
		if err := errors.Join(add(ns), cable(bridges, "clients", "c"+host, ns, clients+host+"/24")); err != nil {
			return err
		}
		if delay == 0 {
			if err := cable(bridges, "peers", "p"+host, ns, peers+host+"/24"); err != nil {
				return err
			}
		}
		nw.Hosts = append(nw.Hosts, cluster.Host{
			Command: []string{"ip", "netns", "exec", ns},
			Peers:   peers + host, Clients: clients + host,
		})
	}
	if delay > 0 {
		return nw.startRelay(n, delay)
	}
	return nil
}

func add(ns string) error {
	if err := ip("netns", "add", ns); err != nil {
		return err
	}
	return ip("-n", ns, "link", "set", "lo", "up")
}

// cable joins a bridge and a namespace, which gets an address on it.
func cable(bridges, bridge, name, ns, addr string) error {
	if err := ip("-n", bridges, "link", "add", name, "up", "master", bridge, "type", "veth", "peer", "name", bridge, "netns", ns); err != nil {
		return err
	}
	return errors.Join(
		ip("-n", ns, "addr", "add", addr, "dev", bridge),
		ip("-n", ns, "link", "set", bridge, "up"),
	)
}

// Outside returns what runs a command in the namespace outside, and the address there.
func (nw *Network) Outside() (command []string, host string) {
	return []string{"ip", "netns", "exec", nw.namespace("outside")}, outside
}

// Listen opens a listener in the namespace outside.
func (nw *Network) Listen() (l net.Listener, err error) {
	err = inside(nw.namespace("outside"), func() error {
		l, err = net.Listen("tcp", outside+":0")
		return err
	})
	return l, err
}

// Dial opens a connection from the namespace outside.
func (nw *Network) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = inside(nw.namespace("outside"), func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

func ip(args ...string) error { return command("", "ip", args...) }

// command runs a command, and returns what it says if it fails.
func command(stdin, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// removeLeftovers removes the namespaces of runs that are no more.
func removeLeftovers() error {
	names, err := filepath.Glob(filepath.Join(namespaceDir, prefix+"*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && !running(n) {
			if err := remove(prefix + pid + "-"); err != nil {
				return err
			}
		}
	}
	return nil
}

// running tells whether the process runs and is a test.
func running(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasSuffix(strings.TrimSuffix(exe, " (deleted)"), ".test")
}

// remove removes a network's namespaces, and ends the gateways that a killed run
// has left in them.
func remove(tag string) error {
	names, err := filepath.Glob(filepath.Join(namespaceDir, tag+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		ns := filepath.Base(name)
		out, listed := exec.Command("ip", "netns", "pids", ns).Output()
		for _, field := range strings.Fields(string(out)) {
			if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
		}
		err := errors.Join(listed, ip("netns", "del", ns))
		if _, gone := os.Stat(name); gone == nil { // else another test has removed what a killed run has left
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
