package netns

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// relay carries IP packets between the gateways, each after a delay. It takes
// the place of tc's netem, which needs a module that many kernels lack: every
// gateway has a TUN device for its peers, and the relay reads and writes them.
type relay struct {
	delay   time.Duration
	devices []*os.File     // in the order of Network.Hosts
	extra   []atomic.Int64 // of each gateway: added to the delay from and to it
	stop    chan struct{}
	wg      sync.WaitGroup
}

// underway bounds the packets from one gateway to another that are on their way; what is
// beyond it is lost, as in a router.
const underway = 1 << 14

type packet struct {
	due  time.Time
	to   int
	data []byte
}

// startRelay joins the gateways by a relay.
func (nw *Network) startRelay(n int, delay time.Duration) error {
	r := &relay{delay: delay, stop: make(chan struct{})}
	nw.relay = r
	for i := range n {
		ns, host := nw.gateway(i), strconv.Itoa(i+1)
		device, err := openTUN(ns, "peers")
		if err != nil {
			return err
		}
		r.devices = append(r.devices, device)
		err = errors.Join(
			ip("-n", ns, "addr", "add", peers+host+"/24", "dev", "peers"),
			ip("-n", ns, "link", "set", "peers", "up", "txqueuelen", "10000"),
		)
		if err != nil {
			return err
		}
	}
	r.extra = make([]atomic.Int64, n)
	for i := range r.devices {
		lines := make([]chan packet, n)
		for to := range lines {
			lines[to] = make(chan packet, underway)
			r.wg.Go(func() { r.write(lines[to]) })
		}
		r.wg.Go(func() { r.read(i, lines) })
	}
	return nil
}

// Slow adds a delay to all packets from and to a gateway; none with 0.
func (nw *Network) Slow(i int, delay time.Duration) {
	nw.faults.mu.Lock()
	defer nw.faults.mu.Unlock()
	nw.relay.extra[i].Store(int64(delay))
	nw.faults.end(func(c *cluster.Cut) bool { return c.From == nameOf(i) }, time.Now())
	if delay == 0 {
		return
	}
	now := time.Now()
	for _, to := range Without(len(nw.Hosts), i) {
		nw.faults.cuts = append(nw.faults.cuts, cluster.Cut{From: nameOf(i), To: nameOf(to), Since: now, Held: now, Partial: true})
	}
}

// read takes packets from a gateway until its device is closed.
func (r *relay) read(i int, lines []chan packet) {
	defer func() {
		for _, line := range lines {
			close(line)
		}
	}()
	b := make([]byte, 1<<16)
	for {
		n, err := r.devices[i].Read(b)
		if err != nil {
			return
		}
		const header = 20
		if n < header || b[0]>>4 != 4 {
			continue
		}
		to := int(b[19]) - 1 // the last byte of the address is the gateway's number
		if to < 0 || to >= len(r.devices) {
			continue
		}
		delay := r.delay + time.Duration(r.extra[i].Load()+r.extra[to].Load())
		select {
		case lines[to] <- packet{time.Now().Add(delay), to, append([]byte(nil), b[:n]...)}:
		default:
		}
	}
}

// write hands packets on when they are due.
func (r *relay) write(line <-chan packet) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p := range line {
		timer.Reset(time.Until(p.due))
		select {
		case <-timer.C:
			_, _ = r.devices[p.to].Write(p.data) // a full or closed device loses it
		case <-r.stop:
		}
	}
}

// Close ends the relay.
func (r *relay) Close() {
	close(r.stop)
	for _, d := range r.devices {
		_ = d.Close()
	}
	r.wg.Wait()
}
