package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// greeting is what the upstream of TestTCP says first, as sshd does.
const greeting = "SSH-2.0-test\r\n"

// TestTCP leads connections through three gateways, of which one is killed and started
// again, and then the leader is stopped for longer than its lease. The upstream never has
// more than k, the line goes on, and nobody else loses its lease.
func TestTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	const k = 6
	lease := Lease(time.Second)
	judge, addr := NewTCPJudge(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, greeting)
		// A stopped gateway passes nothing on, and closes nothing. No hold is longer than the lease.
		_ = c.SetDeadline(time.Now().Add(lease * 9 / 10))
		said := make([]byte, 4)
		if _, err := io.ReadFull(c, said); err == nil {
			time.Sleep(60 * time.Millisecond) // its work
			_, _ = c.Write(said)
		}
	})
	judge.Keep()
	c := Start(t, Options{K: 1, Upstream: "http://127.0.0.1:9", Durable: true, Lease: lease, Pools: []Pool{{Name: "tcp", K: k, Upstream: "tcp://" + addr}}})
	ask := func(ctx context.Context, g *Gateway) error { return converse(ctx, c.TCP(g.Name, "tcp")) }
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8, Ask: ask})
	Span(t, time.Second)

	killed := time.Now()
	if err := c.Gateways[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Gateways[0].Wait(patience); err != nil {
		t.Fatal(err)
	}
	Span(t, lease*11/10)
	judge.AwaitInFlight(t, "one is killed", time.Now(), k, time.Second)
	timing.Within(t, "no connection after the kill", Gap(judge.Since(killed), killed, time.Now()), 2*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Restart(t, 0).AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	Span(t, time.Second)

	roles, err := c.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	victim := c.Gateways[roles.Leader]
	if err := victim.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	t.Cleanup(func() { _ = victim.Signal(syscall.SIGCONT) })
	Span(t, lease*11/10)
	judge.AwaitInFlight(t, "the leader is stopped", time.Now(), k, lease)
	timing.Within(t, "no connection while the leader is stopped", Gap(judge.Since(stopped), stopped, time.Now()), 2*time.Second)
	if err := victim.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := victim.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	woken := time.Now()
	Span(t, time.Second)
	load.Stop()

	_, most, total := judge.Counts()
	t.Logf("%d connections, most at once %d, k is %d", total, most, k)
	if most != k {
		t.Errorf("most connections at the upstream at once: %d, k is %d", most, k)
	}
	KeptLeases(t, c, victim)
	for _, a := range load.Since(time.Time{}) {
		excused := a.Gateway == c.Gateways[0].Name && a.Done.After(killed) && a.Sent.Before(stopped) ||
			a.Gateway == victim.Name && a.Done.After(stopped) && a.Sent.Before(woken)
		if a.Result != OK && !excused {
			t.Errorf("%s, sent %v after the kill: %s", a.Gateway, a.Sent.Sub(killed).Round(time.Millisecond), a.Result)
		}
	}
	served := Served(load.Since(woken), time.Now())
	for _, g := range c.Gateways {
		if served[g.Name] == 0 {
			t.Errorf("%s serves nobody at the end", g.Name)
		}
	}
}

// converse is one connection of a client, which speaks when it has been greeted.
func converse(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(patience))
	heard := make([]byte, len(greeting))
	if _, err := io.ReadFull(conn, heard); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if _, err := io.WriteString(conn, "ping"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !slices.Equal(answer, []byte("ping")) {
		err = fmt.Errorf("answered %q", answer)
	}
	return err
}
