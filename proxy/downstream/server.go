package downstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// LingerTimeout is for a request's body that is not wanted any more, after its answer:
// closing at once would reset the connection, and the answer with it.
const LingerTimeout = 5 * time.Second

const defaultStallTimeout = time.Minute

// lastWord is how long Close waits for clients to take what they are told.
const lastWord = time.Second

// ErrStopped is the cause with which the contexts of requests and TCP connections end when the server
// aborts them.
var ErrStopped = errors.New("downstream: the server has stopped")

// Handler serves what a [Server] accepts.
type Handler interface {
	http.Handler
	// ServeConn serves a TCP connection of the listener that ServeTCP was given with this
	// name. It is for the handler to close. ctx ends when the server aborts
	// everything.
	ServeConn(ctx context.Context, conn *Conn, listener string)
	// Close is called when the server has stopped.
	Close()
}

// RequestHandler may be implemented by a [Handler] that takes requests of HTTP/1 without net/http's
// types.
type RequestHandler interface {
	// ServeRequest is ServeHTTP, with ctx as the request's context.
	ServeRequest(ctx context.Context, w Answer, r *http1.Request)
}

// Config of a Server.
type Config struct {
	// Handler that serves the requests. Required.
	Handler Handler
	// ReadHeaderTimeout bounds the reading of a request's header, of a PROXY
	// header, and of the TLS handshake, default 10 s each. Bodies and answers
	// have no time limit: they may be large.
	ReadHeaderTimeout time.Duration
	// IdleTimeout of kept connections, default 120 s.
	IdleTimeout time.Duration
	// StallTimeout is how long a client of HTTP/2 may take no byte of what is written to
	// it. For others the handler sees to it, see [Conn.StallTimeout]. Default: a minute.
	StallTimeout time.Duration
	// MaxHeaderBytes of a request, default 16 KiB.
	MaxHeaderBytes int
	// MaxConnections of clients at once, over all listeners. The next one waits
	// until another ends. Default: 7/16 of the file descriptors that this
	// process may have.
	MaxConnections int
	// ProxyProtocol are the peers whose connections must begin with a PROXY
	// header, version 1 or 2. Those of others must not.
	ProxyProtocol []netip.Prefix
	// WriteTimeout bounds an answer, from its request on, unless the handler sets another
	// deadline; 0: none.
	WriteTimeout time.Duration
	// OnlyHTTP1: HTTP/2 is not spoken.
	OnlyHTTP1 bool
	// TLS of the listeners that ServeTLS is given.
	TLS *tls.Config
	// Logger; nil discards. What net/http says of HTTP/2 has level Debug: nearly all of it is
	// about clients that broke off, which the access log has, too, and no client must be able to
	// fill the log.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 120*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, defaultStallTimeout)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 16<<10)
	c.MaxConnections = cmp.Or(c.MaxConnections, ShareOfFiles(7))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is wrong with c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(what string) { errs = append(errs, fmt.Errorf("downstream: invalid configuration: %s", what)) }
	if c.Handler == nil {
		bad("no handler")
	}
	if c.ReadHeaderTimeout < 0 || c.IdleTimeout < 0 || c.StallTimeout < 0 || c.WriteTimeout < 0 {
		bad("negative timeout")
	}
	if c.MaxHeaderBytes < 0 {
		bad("negative header size")
	}
	if c.MaxConnections < 0 {
		bad("negative number of connections")
	}
	return errors.Join(errs...)
}

// Server listens for clients, over HTTP and TCP. Unlike http.Server it also ends
// upgraded connections. It is safe for concurrent use.
type Server struct {
	cfg     Config
	direct  RequestHandler // cfg.Handler, if it is one; else nil
	limiter *limiter
	base    context.Context // of every request and TCP connection
	cancel  context.CancelCauseFunc
	clients *clients

	mu        sync.Mutex
	watch     *disconnectWatch // nil: nothing is served yet
	listeners []*listener
	serving   sync.WaitGroup // of listeners
	closing   bool           // no listener may be served any more
}

// NewServer returns a Server that does not listen yet.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, limiter: newLimiter(cfg.MaxConnections, cfg.Logger), clients: newClients()}
	s.direct, _ = cfg.Handler.(RequestHandler)
	s.base, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

// Serve accepts connections on l, HTTP/1.1 and HTTP/2 in the clear, until Shutdown
// or Close, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	return s.serve(l, func(l *listener) error { return s.accept(l, s.serveClient) })
}

// ServeTLS is Serve over TLS. It needs Config.TLS.
func (s *Server) ServeTLS(l net.Listener) error {
	config := s.cfg.TLS.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	return s.serve(l, func(l *listener) error {
		return s.accept(l, func(c *Conn) {
			c.tls = tls.Server(c, config)
			s.serveTLS(c)
		})
	})
}

// serve has accept serve the connections of l.
func (s *Server) serve(l net.Listener, accept func(*listener) error) error {
	opened, err := s.open(l)
	if opened == nil {
		return errors.Join(err, l.Close())
	}
	defer s.serving.Done()
	if err = accept(opened); s.isClosing() {
		return nil
	}
	return err
}

// open makes a listener ready and, with the first one, starts the watch for clients that
// leave. It returns nil if the server is closing.
func (s *Server) open(l net.Listener) (*listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, nil
	}
	if s.watch == nil {
		watch, err := newDisconnectWatch(s.clients)
		if err != nil {
			return nil, err
		}
		s.watch = watch
	}
	opened := &listener{
		Listener: speakProxy(l, s.cfg.ProxyProtocol, s.cfg.ReadHeaderTimeout), raw: l,
		limiter: s.limiter, clients: s.clients, watch: s.watch, headerTime: s.cfg.ReadHeaderTimeout, stallTime: s.cfg.StallTimeout, base: s.base,
	}
	s.listeners = append(s.listeners, opened)
	s.serving.Add(1)
	return opened, nil
}

// accept serves what a listener accepts, until the server closes.
func (s *Server) accept(l *listener, serve func(*Conn)) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.isClosing() || !s.acceptAgain(err) {
				return err
			}
			continue
		}
		go serve(conn.(*Conn))
		runtime.Gosched() // it enters the line before the next one is accepted, as a rule
	}
}

// acceptAgain waits after a failure that passes, such as too many open files, and
// reports whether it is one.
func (s *Server) acceptAgain(err error) bool {
	var passing interface{ Temporary() bool }
	if !errors.As(err, &passing) || !passing.Temporary() {
		return false
	}
	if suppressed, ok := s.limiter.once.Allow("accept"); ok {
		s.cfg.Logger.Warn("a connection cannot be accepted", slog.Any("error", err), slog.Int("suppressed", suppressed))
	}
	const pause = 50 * time.Millisecond
	select {
	case <-time.After(pause):
	case <-s.base.Done():
	}
	return true
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// stop closes the listeners. Whoever has been accepted is served. When it returns, nothing
// more is accepted.
func (s *Server) stop() error {
	s.mu.Lock()
	s.closing = true
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // systemd's listener is closed already
			errs = append(errs, err)
		}
	}
	s.listeners = nil
	s.mu.Unlock()
	s.serving.Wait() // what was being accepted has been
	return errors.Join(errs...)
}

// abort ends the contexts of all requests and TCP connections.
func (s *Server) abort() {
	s.cancel(ErrStopped)
	s.clients.each((*Conn).stop)
}

// finish ends what is left when nothing is served any more.
func (s *Server) finish() {
	s.abort()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil {
		s.watch.close()
	}
	s.cfg.Handler.Close()
}

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int { return s.limiter.connections() }

// acceptAll lets nobody connect any more, and waits until all who have are accepted: a
// listener that is closed before that resets them, with the requests that they have sent.
func (s *Server) acceptAll(ctx context.Context) {
	const handshake = 10 * time.Millisecond
	s.mu.Lock()
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	for _, l := range listeners {
		tcpstate.ConnectNoMore(l.raw)
	}
	for time.Sleep(handshake); ctx.Err() == nil; time.Sleep(time.Millisecond) { // where max_connections are open, until some have ended
		if !slices.ContainsFunc(listeners, func(l *listener) bool { return tcpstate.HasUnaccepted(l.raw) }) {
			return
		}
	}
}

// Shutdown stops accepting connections and waits until every request, upgraded
// ones included, and every TCP connection has ended. Each connection that waits for a request has
// a second for one more, its last: the handler has to say so in its answer, see [Conn.Ends]. When
// ctx ends first, Shutdown aborts the rest and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.acceptAll(ctx)
	err := s.stop()
	s.limiter.windDown(lastRequestTime)
	if err = errors.Join(err, s.limiter.awaitEnd(ctx)); err != nil {
		return errors.Join(err, s.Close())
	}
	s.finish()
	return nil
}

// Close aborts everything: the contexts of requests end with ErrStopped as their cause. The handler
// may still answer; then, or a second later, the clients' connections are closed.
func (s *Server) Close() error {
	s.abort()
	s.limiter.windDown(goodbyeTime)
	err := s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	_ = s.limiter.awaitEnd(ctx)
	s.limiter.end()
	s.clients.each(func(c *Conn) { _ = c.close() })
	_ = s.limiter.awaitEnd(context.Background()) // all has ended with its context
	s.finish()
	return err
}
