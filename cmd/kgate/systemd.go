package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// supervise tells systemd, if that has started the process, that the gateway is
// up, in what state it is, and that it is alive, until ctx ends.
//
// A gateway is up when it listens, even if it refuses requests: the first of three
// does so until the others have come. If it were reported as starting until then,
// systemctl would hang on the first machine of a new cluster, and systemd would end
// gateways that wait for a majority to come back.
func (s *server) supervise(ctx context.Context) {
	if told, err := daemon.SdNotify(false, daemon.SdNotifyReady); !told {
		if err != nil {
			s.log.Warn("cannot tell systemd that the gateway is up", slog.Any("error", err))
		}
		return
	}
	every := time.Second
	watchdog, _ := daemon.SdWatchdogEnabled(false) // an error is: not enabled
	if watchdog > 0 {
		every = min(every, watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		// Asking takes the locks of the cluster and of each pool: a gateway that
		// is stuck in one stops reporting.
		status := "ready"
		if reason := s.node.NotReady(); reason != "" {
			status = reason
		}
		if status != said {
			notify("STATUS=" + strings.ReplaceAll(status, "\n", " "))
			said = status
		}
		if watchdog > 0 {
			notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// notify tells systemd something. A failure has no other effect.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// notifyReloading tells systemd that a reload begins. The returned function tells
// that it is over.
func notifyReloading() (done func()) {
	notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	return func() { notify(daemon.SdNotifyReady) }
}

// notifyStopping tells systemd that the process ends, and how long that may take: the unit
// need not know drain.timeout.
func notifyStopping(timeout time.Duration) {
	const leaving = 15 * time.Second // the cluster, after the last request
	notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (timeout + leaving).Microseconds()))
}

// socketNames are the names of the sockets that systemd may open for a gateway, each in place of the
// address listen.NAME.
var socketNames = []string{"http", "https", "admin"}

// inheritedSockets returns the sockets that systemd has opened, by name.
func inheritedSockets() (map[string][]net.Listener, error) {
	sockets, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sockets)) {
		if !slices.Contains(socketNames, name) {
			errs = append(errs, fmt.Errorf("systemd hands over a socket named %q: write FileDescriptorName=, one of %s", name, strings.Join(socketNames, ", ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, all := range sockets {
			closeAll(all)
		}
		return nil, err
	}
	for _, all := range sockets {
		for i, l := range all {
			all[i] = &inherited{Listener: l}
		}
	}
	return sockets, nil
}

// inherited hides the descriptor of a socket that is open elsewhere, too: clients wait there for the next
// process, so no caller may stop the socket from accepting them. They are served once it is ready.
type inherited struct {
	net.Listener
	left atomic.Bool
}

// Accept implements net.Listener.
func (l *inherited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && l.left.Load() {
		err = http.ErrServerClosed
	}
	return conn, err
}

// leave leaves new connections to the next process.
func (l *inherited) leave() {
	l.left.Store(true)
	_ = l.Close()
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}
