package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/memnet"
	"github.com/kgate/kgate/internal/transport/wire"
)

// to says where a transport is.
func to(t *Transport) To { return To{Name: t.config.Name, Addr: t.Addr().String()} }

// Gateways that are in no view together ask each other, both at once over one connection.
func TestCalls(t *testing.T) {
	pki := newPKI(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			memnet.Test(t, func(t *testing.T) {
				config := func(name string) Config {
					c := Config{Name: name, Answer: func(_ context.Context, from Caller, call string, body []byte) ([]byte, error) {
						switch {
						case from.Name == name:
							return nil, errors.New("from nobody")
						case call == "echo":
							return body, nil
						case call == "fail":
							return nil, errors.New("out of paper")
						}
						return nil, ErrUnknownCall
					}}
					if secure {
						c.TLS = pki.peer(t)
					}
					return c
				}
				t1, t2 := listen(t, config("gw-1")), listen(t, config("gw-2"))
				defer t1.Keep(to(t2))() // a stranger's calls may take less memory
				defer t2.Keep(to(t1))()
				var wg sync.WaitGroup
				for i, pair := range [][2]*Transport{{t1, t2}, {t2, t1}} {
					for n := range 200 {
						wg.Go(func() {
							body := randomBytes(n*n, uint64(i+n))
							got, err := pair[0].Call(within(t), to(pair[1]), Question{Name: "echo", Body: body, Limit: 1 << 20})
							if err != nil || !bytes.Equal(got, body) {
								t.Errorf("call %d: %d bytes, %v", n, len(got), err)
							}
						})
					}
				}
				wg.Wait()
				if _, err := t1.Call(within(t), to(t2), Question{Name: "fail"}); !errors.Is(err, errFailed) {
					t.Errorf("got %v", err)
				}
				if _, err := t1.Call(within(t), to(t2), Question{Name: "else"}); !errors.Is(err, ErrUnknownCall) {
					t.Errorf("got %v", err)
				}
				if _, err := t1.Call(within(t), to(t1), Question{Name: "echo"}); !errors.Is(err, ErrUnknownPeer) {
					t.Errorf("of itself: %v", err)
				}
				if _, err := t1.Call(within(t), To{Name: "gw-3", Addr: t2.Addr().String()}, Question{Name: "echo"}); !errors.Is(err, ErrLinkDown) {
					t.Errorf("of another than is there: %v", err)
				}
			})
		})
	}
}

// A caller that gives up ends the call at the other end, and a connection that ends the wait
// for the answer.
func TestCallsEnd(t *testing.T) {
	asked, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	t1 := listen(t, Config{Name: "gw-1"})
	t2 := listen(t, Config{Name: "gw-2", Answer: func(ctx context.Context, _ Caller, _ string, _ []byte) ([]byte, error) {
		asked <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}})
	release := t1.Keep(to(t2))
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := t1.Call(ctx, to(t2), Question{Name: "wait"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	receive(t, "the call has ended there", ended)
	go func() {
		<-asked
		_ = t2.Close()
	}()
	if _, err := t1.Call(within(t), to(t2), Question{Name: "wait"}); !errors.Is(err, ErrLinkDown) {
		t.Errorf("got %v", err)
	}
	receive(t, "the other call has ended there", ended)
}

func receive(t *testing.T, what string, from <-chan struct{}) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// Datagrams go where there is a connection, and their sender hears that there is none. Changed
// is told of connections.
func TestDatagrams(t *testing.T) {
	var got atomic.Int64
	changes := make(chan Change, 10)
	t1 := listen(t, Config{Name: "gw-1", Changed: func(c Change) { changes <- c }})
	t2 := listen(t, Config{Name: "gw-2", Datagram: func(ch wire.Channel, from Caller, data []byte) {
		if ch == wire.Raft && from.Name == "gw-1" {
			got.Add(int64(len(data)))
		}
	}})
	if err := t1.sendDatagram("gw-2", wire.Raft, []byte("x")); !errors.Is(err, ErrLinkDown) {
		t.Errorf("without a connection: %v", err)
	}
	defer t2.Keep(To{Name: "gw-1"})()
	release := t1.Keep(to(t2))
	if c := <-changes; !c.Up || c.Name != "gw-2" || c.Boot != t2.boot {
		t.Errorf("told %+v", c)
	}
	for _, size := range []int{1, 100_000, 1000} {
		if err := t1.sendDatagram("gw-2", wire.Raft, make([]byte, size)); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "all of them", func() bool { return got.Load() == 101_001 })
	if c := <-changes; !c.Up || !c.Proved {
		t.Errorf("told %+v", c)
	}
	release()
	if c := <-changes; c.Up || c.Err == nil {
		t.Errorf("told %+v", c)
	}
	eventually(t, "nothing is kept of the other process", func() bool { return len(t1.all()) == 0 })
}

// A gateway keeps no connection to itself.
func TestKeepOfItself(t *testing.T) {
	alone := listen(t, Config{Name: "gw-1"})
	alone.Keep(to(alone))()
	if all := alone.all(); len(all) != 0 {
		t.Errorf("%d processes are remembered", len(all))
	}
}
