package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// http2 is a connection that speaks HTTP/2. Its streams are net/http's.
type http2 struct {
	*Streams
	raw  *conn
	used atomic.Bool // something was answered
}

// newHTTP2Transport returns what makes HTTP/2 connections of dialled ones.
func newHTTP2Transport(cfg Config) *http.Transport {
	tr := &http.Transport{
		ResponseHeaderTimeout:  cfg.ResponseHeaderTimeout,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: int64(cfg.MaxHeaderBytes),
		DisableCompression:     true,
	}
	ForStreams(tr)
	return tr
}

// newHTTP2 starts HTTP/2 on stream, which is raw or TLS over it, with one request begun.
func newHTTP2(ctx context.Context, tr *http.Transport, address string, raw *conn, stream net.Conn) (*http2, error) {
	streams, err := NewStreams(ctx, tr, address, stream, streamsSocket{raw})
	if err != nil {
		return nil, err
	}
	if !streams.Begin() {
		return nil, errors.New("the server has closed the connection at once, or takes no requests over it")
	}
	return &http2{Streams: streams, raw: raw}, nil
}

// streamsSocket is the connection below Streams, which close it while it carries requests
// only when it is dead.
type streamsSocket struct{ *conn }

// Close implements Socket.
func (s streamsSocket) Close() error {
	s.reset()
	return nil
}

// own implements exchanger.
func (*http2) own() net.Conn { return nil }
