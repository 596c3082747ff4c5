package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/config"
)

// manager is where systemd listens for what its services say.
func manager(t *testing.T) <-chan string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux")
	}
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	said := make(chan string, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			select {
			case said <- string(b[:n]):
			default: // the test has heard enough
			}
		}
	})
	t.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return said
}

func hear(t *testing.T, said <-chan string, want string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case s := <-said:
			if strings.HasPrefix(s, want) {
				return
			}
		case <-timeout:
			t.Fatalf("systemd is not told %s", want)
		}
	}
}

func TestSystemdIsTold(t *testing.T) {
	said := manager(t)
	t.Setenv("WATCHDOG_USEC", "300000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	n := startSingle(t, upstream.URL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.supervise(ctx) })
	defer wg.Wait()
	defer cancel()
	for _, want := range []string{"READY=1", "STATUS=ready", "WATCHDOG=1", "WATCHDOG=1"} {
		hear(t, said, want)
	}
	if err := n.node.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	hear(t, said, "STATUS=draining")
	done := notifyReloading()
	hear(t, said, "RELOADING=1\nMONOTONIC_USEC=")
	done()
	hear(t, said, "READY=1")
	if timeout := n.beginDrain(n.cfg); timeout != 30*time.Minute {
		t.Errorf("requests in flight have %v", timeout)
	}
	hear(t, said, "STOPPING=1\nEXTEND_TIMEOUT_USEC=1815000000")
}

// Sockets that are open already are listened on in place of the addresses of the
// configuration, several of a name as well.
func TestSocketsFromSystemd(t *testing.T) {
	open := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, second, control := open(), open(), open()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(upstream.Close)
	n := startSingleOn(t, upstream.URL, map[string][]net.Listener{"http": {first, second}, "admin": {control}}, nil)
	for _, url := range []string{"http://" + first.Addr().String(), "http://" + second.Addr().String(), "http://" + control.Addr().String() + "/healthz"} {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", url, res.Status)
		}
	}
	if n.adminAddr.String() != control.Addr().String() {
		t.Errorf("admin is at %s, want %s", n.adminAddr, control.Addr())
	}
}

// A socket that nothing of the configuration uses is an error, and so is one for
// admin that others reach, where there is no token.
func TestSocketsThatDoNotFit(t *testing.T) {
	for _, tt := range []struct{ name, addr, says string }{
		{"https", "127.0.0.1:0", "listen.https is not in the configuration"},
		{"admin", "0.0.0.0:0", "there is no node.admin_token_file"},
	} {
		l, err := net.Listen("tcp", tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.Default()
		onLoopback(&cfg.Listen)
		if err := cfg.Resolve(); err != nil {
			t.Fatal(err)
		}
		n, err := startServer(cfg, slog.New(slog.DiscardHandler), map[string][]net.Listener{tt.name: {l}})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("started with a socket for %s at %s: %v", tt.name, tt.addr, err)
		}
		if n != nil {
			_ = n.close()
		}
		if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = conn.Close()
			t.Errorf("the socket for %s stays open", tt.name)
		}
	}
}
