package proxy

import (
	"bufio"
	"fmt"
	"net/http"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/upstream"
)

// upgrade joins the client's connection and the upstream's, after the upstream has
// agreed to go on in another protocol. When it returns both are closed, unless the
// upstream has agreed to something else: that is the error.
func (ex *exchange) upgrade(out *upstream.Request, res *upstream.Response) error {
	asked, agreed := upgradeType(out.Fields), upgradeType(res.Fields)
	tunnel, ok := res.Body.(*upstream.Tunnel)
	if !isAsked(asked, agreed) || !ok {
		ex.rec.UpstreamStatus = 0
		return &upstream.UpgradeError{Detail: fmt.Sprintf("the server goes on in %q, the client has asked for %q", agreed, asked)}
	}
	conn, brw, err := ex.Hijack()
	if err != nil {
		return &upstream.UpgradeError{Detail: "the client's connection cannot be upgraded: " + err.Error()}
	}
	defer conn.Close()
	ex.hold.download.end(0, 0, true) // there is no telling what the client makes of it
	fields := appendEndToEnd(ex.attempt.out.answer[:0], res.Fields)
	fields.Delete("Content-Length") // there is no body
	ex.decorate(&fields)
	ex.label(&fields)
	fields.Add("Connection", "Upgrade")
	fields.Add("Upgrade", agreed)
	if writeSwitch(brw.Writer, fields) != nil {
		return nil
	}
	said, _ := brw.Peek(brw.Reader.Buffered()) // with the request
	j := joint{tunnel: tunnel, hold: &ex.hold, since: ex.admitted(), rest: restTime}
	j.reset = func() {
		_ = tunnel.Close()
		if ex.conn != nil && (!j.broke || ex.hold.aborted() != nil) {
			ex.conn.Drop() // else it takes what the upstream has said
		}
		_ = conn.Close()
	}
	j.lead(conn, ex.conn, said)
	j.run()
	return nil
}

// writeSwitch writes the answer that ends HTTP on the client's connection.
func writeSwitch(w *bufio.Writer, fields http1.Fields) error {
	head, err := fields.AppendTo(http1.AppendStatusLine(nil, http.StatusSwitchingProtocols), func(*http1.Field) bool { return false })
	if err != nil {
		return err
	}
	_, _ = w.Write(append(head, "\r\n"...))
	return w.Flush()
}
