package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// ServerConfig of a Server.
type ServerConfig struct {
	// Handler that serves the requests. Required.
	Handler *Handler
	// ReadHeaderTimeout bounds the reading of a request's header, of a PROXY
	// header, and of the TLS handshake, default 10 s each. Bodies and answers
	// have no time limit: they may be large.
	ReadHeaderTimeout time.Duration
	// IdleTimeout of kept connections, default 120 s.
	IdleTimeout time.Duration
	// MaxHeaderBytes of a request, default 64 KiB.
	MaxHeaderBytes int
	// MaxConnections of clients at once, over all listeners. The next one waits
	// until another ends. Default: 7/16 of the file descriptors that this
	// process may have.
	MaxConnections int
	// ProxyProtocol are the peers whose connections must begin with a PROXY
	// header, version 1 or 2. Others must not.
	ProxyProtocol []netip.Prefix
	// TLS of the listeners that ServeTLS is given.
	TLS *tls.Config
	// Logger takes what net/http has to say, at level Debug; nil discards it.
	Logger *slog.Logger
}

func (c ServerConfig) withDefaults() ServerConfig {
	if c.ReadHeaderTimeout == 0 {
		c.ReadHeaderTimeout = 10 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 120 * time.Second
	}
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = defaultMaxConnections()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports what is wrong with c, joined.
func (c ServerConfig) Validate() error {
	var errs []error
	if c.Handler == nil {
		errs = append(errs, errors.New("no handler"))
	}
	if c.ReadHeaderTimeout < 0 || c.IdleTimeout < 0 {
		errs = append(errs, errors.New("negative timeout"))
	}
	if c.MaxHeaderBytes < 0 {
		errs = append(errs, errors.New("negative header size"))
	}
	if c.MaxConnections < 0 {
		errs = append(errs, errors.New("negative number of connections"))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(errConfig, err)
	}
	return nil
}

// h2Window bounds what an HTTP/2 client may send of its bodies before they are read: of
// one request, and over one connection. net/http's own bound is 1 MiB, which each
// connection with a request in line could fill.
const h2Window = 128 << 10

// Server listens for clients, over HTTP and TCP. Unlike http.Server it also ends
// upgraded connections.
type Server struct {
	cfg     ServerConfig
	http    *http.Server
	limiter *connLimiter
	base    context.Context // of every request and TCP connection
	cancel  context.CancelFunc

	mu        sync.Mutex
	listeners []net.Listener
	serving   sync.WaitGroup // of listeners
	closing   bool           // no listener may be served any more
}

// NewServer returns a Server that does not listen yet.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	base, cancel := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, base: base, cancel: cancel, limiter: newConnLimiter(cfg.MaxConnections, cfg.Logger)}
	s.http = &http.Server{
		Handler:           cfg.Handler,
		ReadHeaderTimeout: cfg.ReadHeaderTimeout,
		ReadTimeout:       cfg.ReadHeaderTimeout + lingerTimeout, // see boundNothing
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		ErrorLog:          (&stdLog{logger: cfg.Logger}).std(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       ConnContext,
		ConnState:         s.limiter.state,
		Protocols:         new(http.Protocols),
	}
	// A request with a body waits in line with its window full.
	// A write fails when the client takes no byte for as long as it may stall on a route
	// without a pool. The deadlines of requests cannot end that: see closeBlocked.
	// No frame may be announced that is larger than the window: net/http would take
	// 1 MiB, and keep a buffer of that.
	s.http.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerConnection: h2Window, MaxReceiveBufferPerStream: h2Window, MaxReadFrameSize: h2Window / 2,
		WriteByteTimeout: cfg.Handler.current.Load().cfg.StallTimeout,
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s, nil
}

// Serve accepts connections on l, HTTP/1.1 and HTTP/2 in the clear, until Shutdown
// or Close, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	limited := s.limiter.listen(l, s.cfg.ProxyProtocol, s.cfg.ReadHeaderTimeout)
	limited.frameTime = s.cfg.ReadHeaderTimeout
	return s.serve(limited)
}

// ServeTLS is Serve over TLS. It needs ServerConfig.TLS.
func (s *Server) ServeTLS(l net.Listener) error {
	return s.serve(newSecureListener(s.limiter.listen(l, s.cfg.ProxyProtocol, s.cfg.ReadHeaderTimeout), s.cfg))
}

func (s *Server) serve(l net.Listener) error {
	if ok, err := s.start(l); !ok {
		return errors.Join(err, l.Close())
	}
	defer s.serving.Done()
	err := s.http.Serve(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	return err
}

// start notes a listener, and starts the watch for clients that leave with the
// first one. It returns false if l is not to be served.
func (s *Server) start(l net.Listener) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false, nil
	}
	if s.limiter.watch == nil {
		watch, err := newDisconnectWatch()
		if err != nil {
			return false, err
		}
		s.limiter.watch = watch
	}
	s.listeners = append(s.listeners, l)
	s.serving.Add(1)
	return true, nil
}

// stop closes the listeners. Whoever has been accepted is served.
func (s *Server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.listeners = nil
	return errors.Join(errs...)
}

func (s *Server) stopWatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limiter.watch != nil {
		s.limiter.watch.close()
	}
}

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	return s.limiter.open
}

// firstRequestTime is how long Shutdown waits for the first request of a client
// that has been accepted. It is on its way as a rule.
const firstRequestTime = time.Second

// Shutdown stops accepting connections and waits until every request, upgraded
// ones included, and every TCP connection has ended. A client that has been accepted is answered if its
// request comes within a second. When ctx ends first, Shutdown breaks off the rest
// and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	closed := s.stop()
	s.serving.Wait() // what was being accepted has been
	s.http.SetKeepAlivesEnabled(false)
	// From its Shutdown on, net/http closes connections on their first request.
	s.limiter.awaitFirstRequests(ctx, firstRequestTime)
	err := s.http.Shutdown(ctx)
	if err == nil {
		err = s.cfg.Handler.streams.wait(ctx)
	}
	if err = errors.Join(closed, err); err != nil {
		return errors.Join(err, s.Close())
	}
	s.cancel()
	s.stopWatch()
	s.cfg.Handler.Close()
	return nil
}

// Close breaks off everything: upstream connections of requests in flight are
// closed, and so are the clients'.
func (s *Server) Close() error {
	s.cancel()
	s.limiter.end()
	err := errors.Join(s.stop(), s.http.Close())
	_ = s.cfg.Handler.streams.wait(context.Background()) // their context has ended
	s.stopWatch()
	s.cfg.Handler.Close()
	return err
}

// tracker counts what http.Server does not wait for. Its zero value is ready.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil while nothing waits
}

func (t *tracker) add(delta int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += delta
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

func (t *tracker) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
