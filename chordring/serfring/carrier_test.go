package serfring

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
)

// What gossip says of where a gateway is counts only while the gateway has not said it itself.
func TestBelieves(t *testing.T) {
	a := start(t, base("a", "1"))
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	c := a.config.Carrier
	lie := memberlist.Address{Name: "b", Addr: "192.0.2.1:7080"}
	if !c.believes(memberlist.Address{Name: "b", Addr: b.Addr()}) || c.believes(lie) || !c.believes(memberlist.Address{Name: "d", Addr: lie.Addr}) {
		t.Error("a believes the wrong one")
	}
	news := &memberlist.Node{Name: "b", Addr: net.ParseIP("192.0.2.1"), Port: 7080}
	if err := (*newcomers)(a.Agent).NotifyAlive(news); err == nil {
		t.Error("a takes a false address")
	}
	if conn, err := c.DialAddressTimeout(lie, time.Second); err == nil {
		_ = conn.Close()
		t.Error("a connects to a false address")
	}
	long := &memberlist.Node{Name: strings.Repeat("x", 129), Addr: news.Addr}
	if err := (*newcomers)(a.Agent).NotifyAlive(long); err == nil {
		t.Error("a takes a name of 129 bytes")
	}
}

// A process that gossips too much, and asks what makes no sense, keeps the others from nothing.
func TestFlood(t *testing.T) {
	a := start(t, base("a", "1"))
	s := base("noise", "1")
	s.listen(t)
	to := transport.To{Name: "a", Addr: a.Addr()}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		defer close(done)
		var asking sync.WaitGroup
		defer asking.Wait()
		for kind := byte(0); ; kind++ {
			select {
			case <-stop:
				return
			default:
			}
			asking.Go(func() {
				_, _ = s.Links.Call(t.Context(), to, transport.Question{Name: Question, Body: []byte{kind, 0x83}})
			})
			for range 20 {
				_ = s.Links.SendDatagram(to, wire.Gossip, []byte{kind, 0x82, kind})
			}
		}
	}()
	b := start(t, base("b", "1", a.Addr()))
	sees(t, a, "a/1/alive", "b/1/alive")
	sees(t, b, "a/1/alive", "b/1/alive")
}

// A gateway that is asked who it is says so, and keeps nothing.
func TestMeet(t *testing.T) {
	a, b := base("a", "1"), base("b", "1")
	a.listen(t)
	b.listen(t)
	who, err := a.Links.Meet(t.Context(), b.Links.Addr().String())
	if want := (transport.To{Name: "b", Addr: b.Links.Addr().String()}); err != nil || who != want {
		t.Errorf("%+v, %v, want %+v", who, err, want)
	}
	if _, ok := b.Links.Proved("a"); ok {
		t.Error("there is a connection")
	}
}
