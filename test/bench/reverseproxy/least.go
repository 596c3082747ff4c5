package main

import (
	"bufio"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// least forwards nothing of a request but that there is one. What it costs no proxy
// on net/http's server can do without.
type least struct {
	address string
	request []byte

	mu   sync.Mutex
	kept []*connection
}

// connection to the upstream.
type connection struct {
	net.Conn
	answers *bufio.Reader
	buffer  [bufferSize]byte
}

func newLeast(to *url.URL) *least {
	return &least{address: to.Host, request: []byte("GET / HTTP/1.1\r\nHost: " + to.Host + "\r\n\r\n")}
}

// ServeHTTP implements http.Handler.
func (l *least) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := l.forward(w); err != nil {
		slog.Error("cannot forward", slog.Any("error", err))
		w.WriteHeader(http.StatusBadGateway)
	}
}

func (l *least) forward(w http.ResponseWriter) error {
	c, err := l.connection()
	if err != nil {
		return err
	}
	if _, err = c.Write(l.request); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	if _, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{res.Body}, c.buffer[:]); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, c)
	return nil
}

func (l *least) connection() (*connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.kept) - 1; last >= 0 {
		c := l.kept[last]
		l.kept = l.kept[:last]
		return c, nil
	}
	conn, err := net.Dial("tcp", l.address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, answers: bufio.NewReader(conn)}, nil
}

var fixedAnswer = make([]byte, 1<<10)

func answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(fixedAnswer) // its reader may be gone
}
