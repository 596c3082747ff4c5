// Command reverseproxy is what kgate is compared to: a handler on net/http's server,
// and nothing around it. It logs the address it listens on, in JSON, and runs until it
// is ended.
//
//	reverseproxy [-heap-floor MiB] [-handler NAME] http://127.0.0.1:9000
//
// The handlers are
//
//	reverseproxy  net/http's, with a transport and buffers tuned as kgate's are
//	least         does the least that can be done on net/http's server: it sends
//	              a fixed request over a kept connection and copies the answer
//	none          answers by itself
//	sockets       is no handler: it does the least that can be done on Go's sockets
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(log); err != nil {
		log.Error("cannot serve", slog.Any("error", err))
		os.Exit(1)
	}
}

// heapFloor is reserved and never touched, as kgate's is.
var heapFloor []byte

func run(log *slog.Logger) error {
	floor := flag.Int("heap-floor", 0, "MiB of heap that are reserved")
	name := flag.String("handler", "reverseproxy", "reverseproxy, least, none or sockets")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("usage: reverseproxy [flags] URL")
	}
	to, err := url.Parse(flag.Arg(0))
	if err != nil {
		return err
	}
	heapFloor = make([]byte, *floor<<20)
	defer runtime.KeepAlive(heapFloor)
	var handler http.Handler
	switch *name {
	case "reverseproxy":
		handler = newReverseProxy(to)
	case "least":
		handler = newLeast(to)
	case "none":
		handler = http.HandlerFunc(answer)
	case "sockets":
	default:
		return fmt.Errorf("no handler is called %q", *name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log.Info("listening", slog.String("http", l.Addr().String()))
	if handler == nil {
		return serveSockets(l, to.Host)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	return server.Serve(l)
}

func newReverseProxy(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			ResponseHeaderTimeout: time.Minute,
			IdleConnTimeout:       90 * time.Second,
			MaxIdleConnsPerHost:   1024,
			DisableCompression:    true,
		},
		BufferPool: new(buffers),
	}
}

const bufferSize = 32 << 10

// buffers lends the buffers that answers are copied through.
type buffers struct{ pool sync.Pool }

var _ httputil.BufferPool = (*buffers)(nil)

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}
