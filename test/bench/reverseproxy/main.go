// Command reverseproxy is what kgate is compared to: net/http's reverse proxy
// alone, with a transport and buffers tuned as kgate's are, and nothing around
// it. It logs the address it listens on, in JSON, and runs until it is ended.
//
//	reverseproxy http://127.0.0.1:9000 [heap floor in MiB]
package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(log, os.Args[1:]); err != nil {
		log.Error("cannot serve", slog.Any("error", err))
		os.Exit(1)
	}
}

// heapFloor is reserved and never touched, as kgate's is.
var heapFloor []byte

func run(log *slog.Logger, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("usage: reverseproxy URL [MiB]")
	}
	if len(args) == 2 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		heapFloor = make([]byte, n<<20)
		runtime.KeepAlive(heapFloor)
	}
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log.Info("listening", slog.String("http", l.Addr().String()))
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	return server.Serve(l)
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
