package proxy

import (
	"errors"
	"io"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// minSplice is the least that is worth a pipe in the kernel.
const minSplice = 128 << 10

// maxSplice is the most that is copied at once: a rate that is set meanwhile holds for
// what follows.
const maxSplice = 1 << 20

// splicer is an answer's body that can be copied from connection to connection
// without passing through this process (package upstream).
type splicer interface {
	Splice(to io.ReaderFrom, n int64, last bool) (int64, error)
}

// splice copies the rest of a long body inside the kernel, which costs less than half
// of the processor time. It reports false, and has copied nothing, if it cannot: both
// connections must be HTTP/1.1 in the clear, and the length known. Meanwhile the hold
// is judged by what the client acknowledges, so the kernel must tell that.
//
// It begins only when net/http has sent the header: otherwise net/http would keep that
// back until it has 512 bytes of the body, to guess its type.
func (ex *exchange) splice(body io.Reader) (done bool, err error) {
	if ex.bytes == 0 || ex.remaining < minSplice || !ex.http1 || ex.conn == nil || !ex.conn.TellsAcked() || ex.conn.IsTLS() {
		return false, nil
	}
	from, ok := body.(splicer)
	if !ok {
		return false, nil
	}
	to, ok := ex.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return false, nil
	}
	for ex.remaining > 0 {
		may, err := ex.hold.down.take(int(min(ex.remaining, maxSplice)))
		if err != nil {
			return true, err
		}
		n, err := from.Splice(to, int64(may), int64(may) == ex.remaining)
		ex.hold.down.unused(may - int(n))
		if errors.Is(err, errors.ErrUnsupported) {
			return false, nil
		}
		ex.bytes += n
		ex.remaining -= n
		ex.hold.move()
		if err != nil {
			if !tcpstate.IsEstablished(ex.conn.NetConn()) {
				ex.clientGone = true // the error does not tell which of the two it was
			}
			return true, err
		}
	}
	return true, nil
}
