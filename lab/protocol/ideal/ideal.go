package ideal

import (
	"slices"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Spec makes the ideal line.
func Spec() protocol.Spec {
	return protocol.Spec{
		Name: "ideal", About: "one FIFO line with no delay: the bound",
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			return &line{host: h, free: s.K}, nil
		},
	}
}

type line struct {
	host    protocol.Host
	free    int
	waiting []request
}

type request struct {
	node    int
	request protocol.Request
}

func (l *line) Acquire(node int, t protocol.Request) {
	l.waiting = append(l.waiting, request{node, t})
	l.serve()
}

func (l *line) Release(int, protocol.Request) {
	l.free++
	l.serve()
}

func (l *line) serve() {
	for l.free > 0 && len(l.waiting) > 0 {
		r := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.free--
		l.host.Grant(r.node, r.request)
	}
}

func (l *line) Cancel(node int, t protocol.Request) {
	i := slices.Index(l.waiting, request{node, t})
	l.waiting = slices.Delete(l.waiting, i, i+1)
}

func (*line) Deliver(int, int, any) {}
func (*line) Due(int, sim.Timer)    {}
