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
	*streams
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
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(dialledKey{}).(net.Conn), nil
		},
		Protocols: new(http.Protocols),
	}
	tr.Protocols.SetUnencryptedHTTP2(true) // TLS, if any, is below
	return tr
}

// newHTTP2 starts HTTP/2 on stream, which is raw or TLS over it, with one request begun.
func newHTTP2(ctx context.Context, tr *http.Transport, address string, raw *conn, stream net.Conn) (*http2, error) {
	streams, err := newStreams(ctx, tr, address, raw, stream)
	if err != nil {
		return nil, err
	}
	if !streams.begin() {
		return nil, errors.New("the server has closed the connection at once, or takes no requests over it")
	}
	return &http2{streams: streams}, nil
}

// own implements exchanger.
func (*http2) own() net.Conn { return nil }
