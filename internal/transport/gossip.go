package transport

import (
	"context"
	"fmt"

	"github.com/kgate/kgate/internal/peercert"
	"github.com/kgate/kgate/internal/transport/wire"
)

// Meet asks who is at an address: it says nothing but hello, and the other end answers with its
// own and closes. Over TLS the name is in its certificate. The gateway may be this one.
func (t *Transport) Meet(ctx context.Context, addr string) (To, error) {
	ctx, cancel := context.WithTimeout(ctx, t.config.dialTimeout)
	defer cancel()
	raw, conn, err := t.dial(ctx, addr, 0)
	if err != nil {
		return To{}, err
	}
	defer raw.Close()
	var theirs wire.Hello
	err = bound(ctx, raw, func() error {
		if _, err := conn.Write(t.hello("").Append(appendPreamble(nil))); err != nil {
			return err
		}
		if err := readAnswer(conn); err != nil {
			return err
		}
		theirs, err = readHello(conn)
		return err
	})
	if err == nil {
		err = peercert.OfConn(conn, theirs.Name)
	}
	if err != nil {
		return To{}, fmt.Errorf("%s: %w", addr, err)
	}
	return To{Name: theirs.Name, Addr: theirs.Addr}, nil
}

// Proved returns where a gateway is, as it has said itself on the connection that is open; false
// if there is none.
func (t *Transport) Proved(name string) (addr string, ok bool) {
	t.procs.Lock()
	p := t.processes[name]
	t.procs.Unlock()
	if p == nil {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil || !p.session.open {
		return "", false
	}
	return p.session.addr, true
}

// SendDatagram sends a datagram that may be lost. It never blocks. If there is no connection it
// begins to dial, and the error says that the datagram was dropped.
func (t *Transport) SendDatagram(to To, ch wire.Channel, data []byte) error {
	err := t.sendDatagram(to.Name, ch, data)
	if err == nil || to.Addr == "" || to.Name == t.config.Name {
		return err
	}
	p := t.use(to.Name)
	if p == nil {
		return ErrClosed
	}
	defer t.leave(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		if p.link == nil {
			p.addr = to.Addr
		}
		p.want()
		p.release(linger)
	}
	return err
}
