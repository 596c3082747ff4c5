package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// upgradeType returns the protocol that a header asks to go on in; empty: none.
func upgradeType(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	protocol := h.Get("Upgrade")
	for i := range len(protocol) {
		if protocol[i] < ' ' || protocol[i] > '~' {
			return ""
		}
	}
	return protocol
}

// upgrade joins the client's connection and the upstream's, after the upstream has
// agreed to go on in another protocol. When it returns both are closed, unless the
// upstream has agreed to something else: that is the error.
func (ex *exchange) upgrade(out *http.Request, res *http.Response) error {
	asked, agreed := upgradeType(out.Header), upgradeType(res.Header)
	both, ok := res.Body.(io.ReadWriteCloser)
	if asked == "" || !strings.EqualFold(asked, agreed) || !ok {
		ex.rec.UpstreamStatus = 0
		return fmt.Errorf("proxy: the upstream goes on in %q, the client has asked for %q", agreed, asked)
	}
	backend := &upgraded{ReadWriteCloser: both, hold: &ex.hold}
	conn, brw, err := ex.Hijack()
	if err != nil {
		return fmt.Errorf("proxy: the client's connection cannot be upgraded: %w", err)
	}
	defer ex.snapshot.streams.add(-1)
	ex.hold.download.end(0, 0, true) // there is no telling what the client makes of it
	header := ex.Header()
	copyEndToEnd(header, res.Header)
	ex.label()
	header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{agreed}
	if err = writeSwitch(brw.Writer, header); err == nil {
		early := io.LimitReader(brw.Reader, int64(brw.Reader.Buffered())) // sent with the request
		done := make(chan error, 2)
		go func() { done <- pipe(backend, io.MultiReader(early, conn)) }()
		go func() { done <- pipe(conn, backend) }()
		// Until both sides have ended, or one has failed.
		left := 2
		for left > 0 && err == nil {
			err = <-done
			left--
		}
		_, _ = conn.Close(), backend.Close()
		for ; left > 0; left-- {
			if <-done == nil {
				continue // what could fail has been closed already
			}
		}
		return nil
	}
	_, _ = conn.Close(), backend.Close()
	return nil
}

// writeSwitch writes the answer that ends HTTP on the client's connection.
func writeSwitch(w *bufio.Writer, header http.Header) error {
	_, _ = w.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(w)
	_, _ = w.WriteString("\r\n")
	return w.Flush()
}

// errNoHalfClose ends both directions when one cannot be closed alone.
var errNoHalfClose = errors.New("proxy: the connection cannot be closed one way")

// pipe copies one direction and then closes it.
func pipe(to io.Writer, from io.Reader) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	if closeWrite(to) != nil {
		return errNoHalfClose
	}
	return nil
}
