package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/kgate/kgate/internal/socket"
)

// supervise tells systemd, if that has started the process, that the gateway is
// up, how it stands, and that it is alive, until ctx ends.
//
// Up is a gateway that listens: it answers, though for the first of three
// gateways that is a refusal until the others have come. Were it told as starting
// until then, systemctl would hang on the first machine of a new cluster, and
// systemd would end gateways that wait for a majority to come back.
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
		// is stuck in one says nothing any more.
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

// notify tells systemd something; what it does not hear costs nothing but that.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// notifyReloading tells systemd that a reload begins. The returned function tells
// that it is over.
func notifyReloading() (done func()) {
	notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	return func() { notify(daemon.SdNotifyReady) }
}

// socketNames are those of the sockets that systemd may open for a gateway, each
// in place of the address listen.NAME.
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
	return sockets, nil
}

// listen returns the sockets that systemd has opened for an address, or else a new
// one.
func (s *server) listen(key, addr string) ([]net.Listener, error) {
	name := strings.TrimPrefix(key, "listen.")
	if sockets := s.sockets[name]; len(sockets) > 0 {
		for _, l := range sockets {
			// As for an address of the configuration, which says so itself.
			if name == "admin" && s.cfg.Node.AdminTokenFile == "" && !isLoopback(l.Addr()) {
				return nil, errors.New("the socket from systemd can be reached from other machines, and there is no node.admin_token_file: make one with kgate keygen --token, or listen on 127.0.0.1")
			}
		}
		delete(s.sockets, name)
		return sockets, nil
	}
	if path, ok := socket.Path(addr); ok {
		l, err := socket.Listen(path)
		return []net.Listener{l}, err
	}
	l, err := net.Listen("tcp", addr)
	return []net.Listener{l}, err
}

// closeSockets closes those that nobody has begun to use.
func (s *server) closeSockets() error {
	for _, sockets := range s.sockets {
		closeAll(sockets)
	}
	return nil
}

// unusedSockets is an error if systemd has opened sockets that nothing of the
// configuration uses.
func (s *server) unusedSockets() error {
	for name := range s.sockets {
		return fmt.Errorf("systemd hands over a socket named %q, and listen.%s is not in the configuration", name, name)
	}
	return nil
}

func isLoopback(addr net.Addr) bool {
	if addr.Network() == "unix" {
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}
