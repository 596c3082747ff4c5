package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/proxy/downstream"
)

// operators is what the admin address serves.
type operators struct {
	http.Handler
	guarded bool // only users who may make changes can open its Unix socket
}

var _ downstream.Handler = operators{}

// newOperators returns the server of the admin address, with at most this many connections at once; 0: as
// many as its share of the file descriptors.
func newOperators(h operators, connections int, log *slog.Logger) (*downstream.Server, error) {
	return downstream.NewServer(downstream.Config{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		WriteTimeout:   30 * time.Second, // handlers that take longer extend it
		MaxHeaderBytes: 16 << 10, MaxConnections: cmp.Or(connections, downstream.ShareOfFiles(1)), OnlyHTTP1: true,
		Logger: log.With(slog.String("listener", "admin")),
	})
}

// ServeHTTP implements http.Handler.
func (o operators) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := downstream.ConnIn(r.Context()); c.IsWanted() || c.Ends() {
		w.Header().Set("Connection", "close")
	}
	if _, is := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); is && o.guarded {
		r = admin.OverGuardedSocket(r)
	}
	o.Handler.ServeHTTP(w, r)
}

// ServeConn implements downstream.Handler: there are no TCP listeners.
func (operators) ServeConn(_ context.Context, conn *downstream.Conn, _ string) { _ = conn.Close() }

// Close implements downstream.Handler.
func (operators) Close() {}

// isOpen reports whether others than a socket's owner and group may open it: one of systemd has the
// mode that its unit says.
func isOpen(l net.Listener) bool {
	const others = 0o002
	if l.Addr().Network() != "unix" {
		return false
	}
	info, err := os.Stat(l.Addr().String())
	return err != nil || info.Mode()&others != 0
}
